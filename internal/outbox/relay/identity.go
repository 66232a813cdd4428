package relay

import (
	"context"
	"fmt"

	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// Taken is what [Relay.TakeIdentity] found.
type Taken int

const (
	// TakenDone is answered where Redis has what the rows say, or will when it is
	// time: nothing is left to do for whoever asked.
	TakenDone Taken = iota
	// TakenAbsent is answered where there is no pending row of that identity: not
	// yet, or not any more.
	TakenAbsent
	// TakenLocked is answered where somebody else is working on it, or has just
	// written to it.
	TakenLocked
)

// TakeIdentity brings the pending rows of one identity to Redis at once, under
// the same locks as the relay and by the same rules. It is for the consumer of
// compensation messages. An error means that database or Redis could not be
// reached, or that a row must wait; it may be called again at any time.
func (r *Relay) TakeIdentity(ctx context.Context, queue, key, id string) (Taken, error) {
	if r.queues[queue] == nil {
		return TakenAbsent, fmt.Errorf("take row: queue %q is not of this bridge", queue)
	}
	look, err := r.outlook(ctx)
	if err != nil {
		return TakenAbsent, err
	}
	b, err := r.batch(ctx, look, queue)
	if err != nil {
		return TakenAbsent, err
	}
	taken := TakenDone
	err = r.transact(ctx, look, func(inside context.Context, t *transaction) error {
		groups, busy, err := t.Gather(inside, []table.Identity{{Queue: queue, Key: key, ID: id}})
		switch {
		case err != nil:
			return err
		case len(busy) > 0:
			taken = TakenLocked
			return nil
		}
		if err := b.checkLife(inside, t); err != nil {
			return err
		}
		g := groups[0]
		if numbers := unnoted(groups); len(numbers) > 0 {
			taken = TakenLocked
			return t.Note(inside, numbers)
		}
		if len(g.Operations) == 0 && (g.Head == nil || g.Head.State != table.StatePending) {
			taken = TakenAbsent
			return nil
		}
		if g.Head != nil {
			if err := t.Complete(inside, []*table.Row{g.Head}); err != nil {
				return err
			}
		}
		b.reads(inside, t)
		redis, cancel := t.redis(ctx)
		defer cancel()
		b.takeGroup(redis, g)
		return t.Write(inside, b.updates)
	})
	if err != nil {
		return TakenAbsent, err
	}
	b.report(ctx, r.outages.queues)
	switch {
	case len(b.tally.blocked) > 0, b.tally.waiting > 0 && b.tally.err == nil:
		return TakenLocked, nil
	case b.tally.waiting > 0:
		return TakenDone, fmt.Errorf("take row: it must wait: %w", b.tally.err)
	}
	return taken, nil
}

// takeGroup applies the operations, and puts the message if it is still pending.
func (b *batch) takeGroup(ctx context.Context, g *table.Group) {
	defer b.guard(ctx)
	b.operateGroup(ctx, g)
	if b.tally.waiting == 0 && g.Head != nil && g.Head.State == table.StatePending && b.isLoadable(g.Head) && g.Head.IsWhole() {
		b.put(ctx, []*table.Row{g.Head})
	}
}
