package inbox_test

import (
	"context"
	"database/sql"
	"net/http"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/inbox"
)

// A consumer that expires an order once, whatever its broker's client is.
func Example() {
	box, err := inbox.New(inbox.PostgreSQL, "order-expiry") // or inbox.MySQL
	if err != nil {
		panic(err)
	}
	// acknowledge is false if the message must come again.
	consume := func(ctx context.Context, db *sql.DB, headers http.Header, order string) (acknowledge bool, err error) {
		delivery, err := delay.ReadHeaders(headers.Get)
		if err != nil {
			return false, err
		}
		_, err = box.Once(ctx, db, delivery.UID, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "UPDATE orders SET state = 'expired' WHERE id = $1 AND state = 'open'", order)
			return err
		})
		return err == nil, err
	}
	clean := func(ctx context.Context, db *sql.DB) error { // once an hour, say
		_, err := box.Trim(ctx, db, 7*24*time.Hour)
		return err
	}
	_, _ = consume, clean
}
