package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
)

// What README.md shows.
func Example_calls() {
	box := outbox.New(outbox.PostgreSQL) // package delay/outbox; or outbox.MySQL
	place := func(ctx context.Context, db *sql.DB, body []byte) (ref delay.Ref, err error) {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return ref, err
		}
		defer func() { _ = tx.Rollback() }() // Does nothing after the commit.
		ref, err = box.Schedule(ctx, tx, "orders", delay.Message{
			ID: "order-42/timeout", Key: "order-42", Topic: "order.timeout", Body: body,
		}, delay.After(30*time.Minute))
		if err != nil {
			return ref, err
		}
		return ref, tx.Commit() // rolled back: nothing ever happened
	}
	pay := func(ctx context.Context, tx *sql.Tx, ref delay.Ref) error {
		row, err := box.Get(ctx, tx, "orders", ref) // pending, stored, published, cancelled, too_late, …
		if err != nil {
			return err
		}
		fmt.Println(row.State)
		return box.Cancel(ctx, tx, "orders", ref)
	}
	_, _ = place, pay
}
