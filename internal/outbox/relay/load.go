package relay

import (
	"context"

	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// load brings a batch of a queue's messages into Redis.
func (l *lane) load(ctx context.Context, look outlook, work table.Work) (o outcome, err error) {
	b, err := l.relay.batch(ctx, look, work.Queue)
	if err != nil {
		return l.unpinned(ctx, work.Queue, l.relay.outages.queues, err)
	}
	err = l.relay.transact(ctx, look, func(inside context.Context, t *transaction) error {
		work.Blocked, work.Most = l.relay.blocked.list(work.Queue), l.relay.config.Batch
		rows, err := t.LockHeads(inside, work)
		if err != nil || len(rows) == 0 {
			return err
		}
		n := table.Affordable(rows)
		full := n < len(rows) || len(rows) == work.Most
		rows = rows[:n]
		if err := t.Complete(inside, rows); err != nil {
			return err
		}
		if err := b.checkLife(inside, t); err != nil {
			return err
		}
		redis, cancel := t.redis(ctx)
		defer cancel()
		b.put(redis, rows)
		o = b.outcome(rows[n-1], full)
		return t.Write(inside, b.updates)
	})
	if l.disown(ctx, work.Queue, l.relay.outages.queues, err) {
		return outcome{waiting: 1}, nil
	}
	if err == nil {
		o.crowded = b.report(ctx, l.relay.outages.queues)
	}
	return o, err
}
