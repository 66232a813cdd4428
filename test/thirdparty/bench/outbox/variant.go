package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox/pgxtx"
	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// load is what one measurement does.
type load struct {
	count, size, producers int
}

// result is what it gave, in messages a second, and the processor time of
// producer, PostgreSQL, relay and Redis.
type result struct {
	// rate is until everything was where the variant brings it; committed until it
	// was committed, if that is something else.
	rate, committed float64
	cpu             [4]time.Duration
}

// variant is a way to write size messages, of which the first is number from,
// within a transaction.
type variant struct {
	name  string
	write func(ctx context.Context, w *world, tx pgx.Tx, queue string, from, size int) error
	// before is a relay that runs meanwhile, after one that begins then. settles is a
	// settler that begins when all messages are published.
	before, after, settles bool
}

var variants = []variant{
	{name: "plain INSERT", write: plainInsert},
	{name: "outbox", write: schedule, before: true},
	{name: "outbox, no relay", write: schedule},
	{name: "relay alone", write: schedule, after: true},
	{name: "settler alone", write: scheduleDue, settles: true},
	{name: "River InsertManyTx", write: riverInsert},
	{name: "River InsertManyFastTx", write: riverFast},
}

var (
	dueAt = time.Now().Add(45 * time.Minute) // Within the horizon, and after the end.
	body  = strings.Repeat("0123456789abcdef", 16)
	topic = "order.timeout"
)

func messageID(number int) string { return fmt.Sprintf("order-%020d", number) }

// plainInsert is one statement with the columns that the SDK writes.
func plainInsert(ctx context.Context, _ *world, tx pgx.Tx, queue string, from, size int) error {
	const columns = 9
	var query strings.Builder
	query.WriteString("INSERT INTO " + plainTable + " (queue, message_key, message_id, token, tried, due_ms, topic, headers, body) VALUES ")
	args := make([]any, 0, columns*size)
	for i := range size {
		if i > 0 {
			query.WriteString(", ")
		}
		n := i * columns
		_, _ = fmt.Fprintf(&query, "($%d,$%d,$%d,$%d,$%d,$%d,$%d,$%d,$%d)", n+1, n+2, n+3, n+4, n+5, n+6, n+7, n+8, n+9)
		args = append(args, queue, "", messageID(from+i), fmt.Sprintf("~%015d", from+i), false, dueAt.UnixMilli(), topic, nil, []byte(body))
	}
	_, err := tx.Exec(ctx, query.String(), args...)
	return err
}

func schedule(ctx context.Context, w *world, tx pgx.Tx, queue string, from, size int) error {
	return scheduleAt(ctx, w, tx, queue, dueAt, from, size)
}

func scheduleDue(ctx context.Context, w *world, tx pgx.Tx, queue string, from, size int) error {
	return scheduleAt(ctx, w, tx, queue, time.Now(), from, size)
}

func scheduleAt(ctx context.Context, w *world, tx pgx.Tx, queue string, due time.Time, from, size int) error {
	requests := make([]delay.Request, size)
	for i := range requests {
		requests[i] = delay.Request{Message: delay.Message{ID: messageID(from + i), Topic: topic, Body: []byte(body)}, When: delay.At(due)}
	}
	if size == 1 {
		_, err := w.box.Schedule(ctx, pgxtx.Wrap(tx), queue, requests[0].Message, requests[0].When)
		return err
	}
	_, err := w.box.ScheduleBatch(ctx, pgxtx.Wrap(tx), queue, requests)
	return err
}

// riverArgs are the same message.
type riverArgs struct {
	ID    string `json:"id"`
	Topic string `json:"topic"`
	Body  string `json:"body"`
}

func (riverArgs) Kind() string { return "message" }

func riverParams(from, size int) []river.InsertManyParams {
	params := make([]river.InsertManyParams, size)
	for i := range params {
		params[i] = river.InsertManyParams{
			Args: riverArgs{ID: messageID(from + i), Topic: topic, Body: body}, InsertOpts: &river.InsertOpts{ScheduledAt: dueAt},
		}
	}
	return params
}

func riverInsert(ctx context.Context, w *world, tx pgx.Tx, _ string, from, size int) error {
	_, err := w.river.InsertManyTx(ctx, tx, riverParams(from, size))
	return err
}

func riverFast(ctx context.Context, w *world, tx pgx.Tx, _ string, from, size int) error {
	_, err := w.river.InsertManyFastTx(ctx, tx, riverParams(from, size))
	return err
}

// measure runs a variant once.
func (w *world) measure(ctx context.Context, v variant, l load) (r result, err error) {
	q, err := w.clean(ctx)
	if err != nil {
		return r, err
	}
	var bridge *process
	defer func() {
		if bridge != nil {
			bridge.close()
		}
	}()
	if v.before {
		if bridge, err = w.launch(ctx, isRelay, q); err != nil {
			return r, err
		}
	}
	if err := w.prepare(ctx, v, l, q); err != nil {
		return r, err
	}
	before, begin := w.spent(bridge), time.Now()
	switch {
	case v.after:
		bridge, err = w.launch(ctx, isRelay, q)
	case v.settles:
		bridge, err = w.launch(ctx, isSettler, q)
	default:
		err = w.produce(ctx, v, l, q)
	}
	if err != nil {
		return r, err
	}
	if v.after || v.settles {
		begin = bridge.began
	}
	committed := time.Since(begin)
	switch {
	case v.settles:
		err = w.settled(ctx)
	case bridge != nil:
		err = arrived(ctx, q, l.count)
	}
	if err != nil {
		return r, err
	}
	r.rate = float64(l.count) / time.Since(begin).Seconds()
	if v.before {
		r.committed = float64(l.count) / committed.Seconds()
	}
	after := w.spent(bridge)
	for i := range r.cpu {
		r.cpu[i] = after[i] - before[i]
	}
	return r, nil
}

// prepare does what is not measured.
func (w *world) prepare(ctx context.Context, v variant, l load, q *store.Queue) error {
	if !v.after && !v.settles {
		return nil
	}
	if err := w.produce(ctx, v, l, q); err != nil || !v.settles {
		return err
	}
	relay, err := w.launch(ctx, isRelay, q)
	if err != nil {
		return err
	}
	defer relay.close()
	if err := arrived(ctx, q, l.count); err != nil {
		return err
	}
	return w.stored(ctx, q)
}

// produce writes and commits everything.
func (w *world) produce(ctx context.Context, v variant, l load, q *store.Queue) error {
	group, ctx := errgroup.WithContext(ctx)
	batches := l.count / l.size
	for n := range l.producers {
		group.Go(func() error {
			for batch := n; batch < batches; batch += l.producers {
				err := pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error { return v.write(ctx, w, tx, q.Name(), batch*l.size, l.size) })
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}
