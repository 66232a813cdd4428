package outbox

import "context"

// load brings a batch of a queue's messages into Redis.
func (l *lane) load(ctx context.Context, look outlook, queue string, after cursor) (o outcome, err error) {
	b, err := l.relay.batch(ctx, look, queue)
	if err != nil {
		return l.unpinned(ctx, queue, l.relay.outages.queues, err)
	}
	err = l.relay.transact(ctx, look, func(inside context.Context, t *transaction) error {
		rows, err := l.relay.db.lockHeads(inside, t.tx, work{
			queue: queue, operations: look.queues[queue].operations, untilMs: look.untilMs(), after: after,
			blocked: l.relay.blocked.list(queue), most: l.relay.config.Batch,
		})
		if err != nil || len(rows) == 0 {
			return err
		}
		n := affordable(rows)
		full := n < len(rows) || len(rows) == l.relay.config.Batch
		rows = rows[:n]
		if err := l.relay.db.complete(inside, t.tx, rows); err != nil {
			return err
		}
		redis, cancel := t.redis(ctx)
		defer cancel()
		b.put(redis, rows)
		o = b.outcome(rows[n-1], full)
		return l.relay.db.write(inside, t.tx, &b.updates)
	})
	if err == nil {
		b.report(ctx, l.relay.outages.queues)
	}
	return o, err
}
