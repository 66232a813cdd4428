package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"log"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/delay/outbox/pgxtx"
)

var box = outbox.New(outbox.PostgreSQL)

// An order and its timeout are one transaction.
func ExampleOutbox_Schedule() {
	placeOrder := func(ctx context.Context, db *sql.DB) (err error) {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // Does nothing after the commit.
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES ($1)", 42); err != nil {
			return err
		}
		timeout := delay.Message{ID: "order-42/timeout", Key: "order-42", Topic: "order.timeout", Body: []byte(`{"order": 42}`)}
		if _, err := box.Schedule(ctx, tx, "orders", timeout, delay.After(30*time.Minute)); err != nil {
			return err // Also delay.ErrDuplicate, with which the transaction could go on.
		}
		return tx.Commit()
	}
	_ = placeOrder
}

// What a transaction pays, it no longer needs to time out.
func ExampleOutbox_Cancel() {
	pay := func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "UPDATE orders SET paid = true WHERE id = $1", 42); err != nil {
			return err
		}
		return box.Cancel(ctx, tx, "orders", delay.Ref{ID: "order-42/timeout", Key: "order-42"})
	}
	_ = pay
}

// Whether the cancel came in time, the row tells.
func ExampleOutbox_Get() {
	cameInTime := func(ctx context.Context, tx *sql.Tx) (bool, error) {
		row, err := box.Get(ctx, tx, "orders", delay.Ref{ID: "order-42/timeout", Key: "order-42"})
		if errors.Is(err, delay.ErrNotFound) {
			return false, nil
		}
		return row.Op == outbox.OpCancel && row.State == outbox.Cancelled, err
	}
	_ = cameInTime
}

// If it knows the brokers, Schedule refuses a wrong topic at once, with
// delay.ErrInvalid, however far the due time.
func ExampleWithSink() {
	box := outbox.New(outbox.PostgreSQL, outbox.WithSink("orders", outbox.Kafka), outbox.WithSink("mails", outbox.NATS))
	_ = box
}

// The fast path: Redis has the message as soon as the database.
func ExampleOutbox_Track() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	fast := outbox.New(outbox.PostgreSQL, outbox.WithRedis(rdb, "delay"))
	remind := func(ctx context.Context, tx *sql.Tx) error {
		tracked := fast.Track(tx)
		if _, err := fast.Schedule(ctx, tracked, "mails", delay.Message{Topic: "reminder"}, delay.After(5*time.Second)); err != nil {
			return err
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		if err := tracked.Push(ctx); err != nil {
			log.Print(err) // Nothing is lost: the bridge takes the row.
		}
		return nil
	}
	_ = remind
}

// A transaction of pgx is wrapped.
func ExampleOutbox_pgx() {
	remind := func(ctx context.Context, conn *pgx.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			_, err := box.Schedule(ctx, pgxtx.Wrap(tx), "mails", delay.Message{Topic: "reminder"}, delay.After(time.Hour))
			return err
		})
	}
	_ = remind
}
