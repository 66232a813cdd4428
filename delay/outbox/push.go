package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/compensation"
	"github.com/delaybridge/delaybridge/internal/engine/store"
)

var errAway = errors.New("redis did not answer before the commit")

// pushPatience is how long a push waits for Redis: its caller has others waiting.
const pushPatience = 2 * time.Second

// Push brings the scheduled messages to Redis. Call it only after the commit has succeeded; a second call
// does nothing. An error means that some messages are neither in Redis nor sent to the bridge by
// [WithCompensation]. Log it and do nothing more, since the bridge finds the rows. Push writes a queue's
// messages within two seconds, and within ten of [Outbox.Track], or not at all.
//
// The error is [delay.ErrInvalid] without [WithRedis].
func (t *Tracked) Push(ctx context.Context) error {
	if t.box.err != nil {
		return t.box.err
	}
	if t.box.rdb == nil {
		return invalid("redis", "nil", "WithRedis, for Push")
	}
	rows := map[string][]trackedRow{}
	for _, r := range t.rows {
		rows[r.queue] = append(rows[r.queue], r)
	}
	t.rows, t.bytes = nil, 0
	var errs []error
	for queue, rows := range rows {
		errs = append(errs, t.push(ctx, queue, rows))
	}
	return errors.Join(errs...)
}

// push writes the messages of one queue, and sends compensations for those that
// it cannot write.
func (t *Tracked) push(ctx context.Context, queue string, rows []trackedRow) error {
	errs := t.put(ctx, queue, rows)
	for i, err := range errs {
		if err == nil {
			continue
		}
		if errs[i] = t.tell(ctx, rows[i], err); errs[i] != nil {
			errs[i] = fmt.Errorf("push message %q: %w", rows[i].message.ID, errs[i])
		}
	}
	return errors.Join(errs...)
}

// put returns one error per row, by index; nil means that nothing is left to do.
// Answers that are no errors are left to the bridge, which records them in the row.
func (t *Tracked) put(ctx context.Context, queue string, rows []trackedRow) []error {
	deadline := t.since.Add(pushTime)
	if soon := time.Now().Add(pushPatience); soon.Before(deadline) {
		deadline = soon
	}
	q, errs := t.pins[queue], make([]error, len(rows))
	if q == nil {
		for i := range errs {
			errs[i] = errAway
		}
		return errs
	}
	list := make([]store.Row, len(rows))
	for i, r := range rows {
		list[i] = store.Row{Token: r.token, Message: r.message, DueAt: time.UnixMilli(r.due.ms)}
	}
	for i, answer := range q.PutWithin(ctx, deadline, list) {
		errs[i] = answer.Err
	}
	return errs
}

// queue returns the queue of that name in Redis. It is made once, since it remembers its layout.
func (o *Outbox) queue(name string) *store.Rows {
	if q, ok := o.queues.Load(name); ok {
		return q.(*store.Rows)
	}
	q, _ := o.queues.LoadOrStore(name, store.New(o.rdb, o.prefix, name).Rows())
	return q.(*store.Rows)
}

// tell publishes the compensation message of a row that could not be written.
func (t *Tracked) tell(ctx context.Context, r trackedRow, cause error) error {
	if t.box.compensation.publish == nil {
		return cause
	}
	body, err := compensation.Encode(&compensation.Message{
		Kind: compensation.KindRow, Queue: r.queue, Token: r.token, ID: r.message.ID, Key: r.message.Key,
	})
	if err != nil {
		return errors.Join(cause, err)
	}
	topic := t.box.compensation.topic
	if topic == "" {
		topic = compensation.Topic(r.queue)
	}
	if err := t.box.compensation.publish(ctx, topic, compensation.Headers(), body); err != nil {
		return errors.Join(cause, fmt.Errorf("publish compensation: %w", err))
	}
	return nil
}
