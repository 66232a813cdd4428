package inputs

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
)

// outboxLast is the first instant that is too late for a row.
var outboxLast = time.Date(10000, time.January, 1, 0, 0, 0, 0, time.UTC)

// outboxEntrance is the SDK's outbox. Its calls are in transactions that are committed: a
// bad input must leave no row, and the transaction as it was.
type outboxEntrance struct {
	aim
	db *sql.DB
}

func (e outboxEntrance) name() string { return "outbox" }

func (e outboxEntrance) inputs(context.Context) (list []input, err error) {
	box := outbox.New(outbox.PostgreSQL, outbox.WithSink(e.queue, outbox.NATS))
	add := func(what string, names []string, call func(context.Context, outbox.Tx) error) {
		list = append(list, sdkInput(what, names, func(ctx context.Context) error { return commit(ctx, e.db, call) }))
	}
	rnd, queue, kept := e.random("outbox"), e.queue, delay.Ref{ID: keptID}
	for _, bad := range spoil(e.message(), rnd) {
		add("schedule: "+bad.what, bad.names, func(ctx context.Context, tx outbox.Tx) error {
			_, err := box.Schedule(ctx, tx, queue, bad.message, delay.After(time.Hour))
			return err
		})
	}
	for what, when := range badWhens(0, outboxLast) {
		add("schedule: due "+what, dueNames, func(ctx context.Context, tx outbox.Tx) error {
			_, err := box.Schedule(ctx, tx, queue, e.message(), when)
			return err
		})
		add("reschedule: due "+what, dueNames, func(ctx context.Context, tx outbox.Tx) error {
			return box.Reschedule(ctx, tx, queue, kept, when)
		})
	}
	for _, text := range append(badNames(rnd), "") {
		e.refs(box, "id", delay.Ref{ID: text}, add)
		if text != "" {
			e.refs(box, "key", delay.Ref{ID: keptID, Key: text}, add)
		}
	}
	for _, text := range badQueues() {
		add(fmt.Sprintf("schedule: queue %q", text), []string{"queue"}, func(ctx context.Context, tx outbox.Tx) error {
			_, err := box.Schedule(ctx, tx, text, e.message(), delay.After(time.Hour))
			return err
		})
	}
	return append(list, e.options()...), nil
}

// refs adds the calls that name a message.
func (e outboxEntrance) refs(
	box *outbox.Outbox, field string, ref delay.Ref, add func(string, []string, func(context.Context, outbox.Tx) error),
) {
	what, names := fmt.Sprintf("%s %.80q", field, ref), fieldNames(field)
	add("cancel: "+what, names, func(ctx context.Context, tx outbox.Tx) error { return box.Cancel(ctx, tx, e.queue, ref) })
	add("reschedule: "+what, names, func(ctx context.Context, tx outbox.Tx) error {
		return box.Reschedule(ctx, tx, e.queue, ref, delay.After(time.Hour))
	})
	add("get: "+what, names, func(ctx context.Context, tx outbox.Tx) error {
		_, err := box.Get(ctx, tx, e.queue, ref)
		return err
	})
}

// options are wrong from the beginning; each call says so.
func (e outboxEntrance) options() (list []input) {
	wrong := func(field, what string, dialect outbox.Dialect, opts ...outbox.Option) {
		box := outbox.New(dialect, opts...)
		list = append(list, sdkInput(field+" "+what, []string{field}, func(ctx context.Context) error {
			return commit(ctx, e.db, func(ctx context.Context, tx outbox.Tx) error {
				_, err := box.Schedule(ctx, tx, e.queue, e.message(), delay.After(time.Hour))
				return err
			})
		}))
	}
	wrong("dialect", "none", "")
	wrong("dialect", "unknown", "oracle")
	for _, table := range []string{"", "a b", "a;b", `a"b`, "a.b.c", "a\x00", "1a", "ä"} {
		wrong("table", fmt.Sprintf("%q", table), outbox.PostgreSQL, outbox.WithTable(table))
	}
	wrong("max size", "0", outbox.PostgreSQL, outbox.WithMaxSize(0))
	wrong("max size", "-1", outbox.PostgreSQL, outbox.WithMaxSize(-1))
	wrong("sink", "unknown", outbox.PostgreSQL, outbox.WithSink(e.queue, "pulsar"))
	wrong("queue", "of a sink", outbox.PostgreSQL, outbox.WithSink("a b", outbox.NATS))
	wrong("encryption", "no keys", outbox.PostgreSQL, outbox.WithEncryption(nil))
	wrong("notify", "in MySQL", outbox.MySQL, outbox.WithNotify())
	return list
}

// commit runs a call in a transaction of its own. A row that it has left is told, as
// is a transaction that cannot go on.
func commit(ctx context.Context, db *sql.DB, call func(context.Context, outbox.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("%w: %w", delay.ErrUnavailable, err)
	}
	failure := call(ctx, tx)
	if failure == nil {
		return tx.Rollback() // The row would be published.
	}
	var rows int
	if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM delay_outbox WHERE status = 0").Scan(&rows); err != nil {
		return errors.Join(fmt.Errorf("the transaction cannot go on: %w", err), tx.Rollback())
	}
	if rows > 0 {
		return errors.Join(fmt.Errorf("%d rows were written", rows), tx.Rollback())
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("the transaction cannot be committed: %w", err)
	}
	return failure
}
