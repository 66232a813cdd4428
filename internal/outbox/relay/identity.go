package relay

import (
	"context"
	"fmt"

	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// TakeResult is the result of [Relay.TakeIdentity].
type TakeResult int

const (
	// TakeDone means that Redis has what the rows say, or will when it is
	// time: the caller has nothing left to do.
	TakeDone TakeResult = iota
	// TakeAbsent means that there is no pending row of that identity: not
	// yet, or not any more.
	TakeAbsent
	// TakeLocked means that another transaction is working on it, or has just
	// written to it.
	TakeLocked
)

// TakeIdentity brings the pending rows of one identity to Redis at once, under
// the same locks as the relay and by the same rules. It is for the consumer of
// compensation messages. An error means that database or Redis could not be
// reached, or that a row must wait; it may be called again at any time.
func (r *Relay) TakeIdentity(ctx context.Context, queue, key, id string) (TakeResult, error) {
	served := r.served.Load().queues[queue]
	if served == nil {
		return TakeAbsent, fmt.Errorf("take row: this bridge does not have queue %q", queue)
	}
	o, err := r.outlook(ctx)
	if err != nil {
		return TakeAbsent, err
	}
	b, err := r.batch(ctx, o, served)
	if err != nil {
		return TakeAbsent, err
	}
	taken := TakeDone
	err = r.transact(ctx, o, func(ctx, redis context.Context, t *table.Tx) error {
		groups, busy, err := t.Gather(ctx, []table.Identity{{Queue: queue, Key: key, ID: id}})
		switch {
		case err != nil:
			return err
		case len(busy) > 0:
			taken = TakeLocked
			return nil
		}
		noted, err := b.begin(ctx, t, groups, true)
		if noted || err != nil {
			taken = TakeLocked
			return err
		}
		g := groups[0]
		if len(g.Operations) == 0 && (g.Head == nil || g.Head.State != table.StatePending) {
			taken = TakeAbsent
			return nil
		}
		if g.Head != nil {
			if err := t.Complete(ctx, []*table.Row{g.Head}); err != nil {
				return err
			}
		}
		b.operateAll(ctx, redis, t, groups)
		if b.waiting == 0 && g.Head != nil && g.Head.State == table.StatePending && o.isLoadable(g.Head) && g.Head.IsWhole() {
			b.put(redis, []*table.Row{g.Head})
		}
		return t.Write(ctx, b.updates)
	})
	if err != nil {
		return TakeAbsent, err
	}
	b.report(ctx, served.messages)
	switch {
	case len(b.blocked) > 0, b.waiting > 0 && b.err == nil:
		return TakeLocked, nil
	case b.waiting > 0:
		return TakeDone, fmt.Errorf("take row: it must wait: %w", b.err)
	}
	return taken, nil
}
