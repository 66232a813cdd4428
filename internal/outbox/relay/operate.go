package relay

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// operateWidth is how many identities are worked on at the same time; the
// operations of one go one after the other.
const operateWidth = 16

// operate applies a batch of a queue's operations.
func (l *lane) operate(ctx context.Context, look outlook, work table.Work) (o outcome, err error) {
	b, err := l.relay.batch(ctx, look, work.Queue)
	if err != nil {
		return l.unpinned(ctx, work.Queue, l.relay.outages.operations, err)
	}
	err = l.relay.transact(ctx, look, func(inside context.Context, t *transaction) error {
		work.Most = min(l.relay.config.Batch, table.BatchRows)
		rows, err := t.LockOperations(inside, work)
		if err != nil || len(rows) == 0 {
			return err
		}
		list := make([]table.Identity, len(rows))
		for i, r := range rows {
			list[i] = r.Identity
		}
		groups, busy, err := t.Gather(inside, list)
		if err != nil {
			return err
		}
		if err := b.checkLife(inside, t); err != nil {
			return err
		}
		b.wait(len(busy), nil)
		redis, cancel := t.redis(ctx)
		defer cancel()
		b.operateAll(redis, groups)
		o = b.outcome(rows[len(rows)-1], len(rows) == work.Most)
		return t.Write(inside, b.updates)
	})
	if l.disown(ctx, work.Queue, l.relay.outages.operations, err) {
		return outcome{waiting: 1}, nil
	}
	if err == nil {
		b.report(ctx, l.relay.outages.operations)
	}
	return o, err
}

func (b *batch) operateAll(ctx context.Context, groups []*table.Group) {
	var working errgroup.Group
	working.SetLimit(operateWidth)
	for _, g := range groups {
		working.Go(func() error {
			defer b.guard(ctx)
			b.operateGroup(ctx, g)
			return nil
		})
	}
	_ = working.Wait() // None returns an error.
}

func (b *batch) isLoadable(r *table.Row) bool { return r.DueMs <= b.look.untilMs() }

// operateGroup applies the operations of one identity until one must wait.
func (b *batch) operateGroup(ctx context.Context, g *table.Group) {
	for _, op := range g.Operations {
		v, err := b.operateOne(ctx, g, op)
		b.set(op, v.op, err)
		b.setHead(g, v.head)
		if v.stop {
			return
		}
	}
}

// operateOne decides about one operation, and asks Redis where the table alone
// does not tell. Redis is told the token of the row that the operation means, so it
// touches no other message of that id.
func (b *batch) operateOne(ctx context.Context, g *table.Group, op *table.Row) (verdict, error) {
	if err := op.CheckOperation(); err != nil {
		return verdict{op: table.Update{State: table.StateRefused, Reason: err.Error()}}, nil //nolint:nilerr // The row says it.
	}
	if v, ok := judgeByTable(g, op); ok {
		return v, nil
	}
	s := situation{verb: op.Verb, marked: g.Head.Maybe, op: table.Moved{Token: op.Token, DueMs: op.DueMs, Revision: op.Number}}
	o := store.Operation{ID: op.ID, Key: op.Key, Token: op.Token, Target: g.Head.Token}
	var answer store.Answer
	if op.Verb == table.VerbCancel {
		answer = b.redis.CancelRow(ctx, o)
	} else {
		answer = b.redis.RescheduleRow(ctx, o, op.DueAt())
	}
	if answer.Err == nil && answer.Code == store.NotFound {
		var err error
		if s.maybe, err = b.maybeOut(ctx, g.Head); err != nil {
			return verdict{stop: true}, err
		}
	}
	return judge(s, answer), answer.Err
}

// maybeOut reports whether a copy of the row's message may be out, where Redis knows
// nothing of it. It asks Redis only where all else leaves that open, once a batch.
func (b *batch) maybeOut(ctx context.Context, r *table.Row) (bool, error) {
	maybe, ifOlder := b.look.maybeOut(r)
	if !ifOlder {
		return maybe, nil
	}
	b.born.once.Do(func() {
		var shards []time.Time
		shards, b.born.err = b.redis.Born(ctx)
		for _, at := range shards {
			if at.After(b.born.last) {
				b.born.last = at
			}
		}
	})
	return b.made(r).Before(b.born.last), b.born.err
}

// setHead records what becomes of the message's row, for the next operation too.
func (b *batch) setHead(g *table.Group, c table.Update) {
	if c.IsZero() || g.Head == nil {
		return
	}
	head := g.Head
	if c.Move != nil {
		head.Rename(c.Move.Token)
		head.DueMs, head.Revision = c.Move.DueMs, c.Move.Revision
		head.Maybe = head.Maybe || c.Move.Maybe
		c.Move.Maybe = head.Maybe
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.updates.Set(head.Number, c)
	if c.State == table.StatePending {
		head.State = table.StatePending
		return
	}
	if c.State != head.State {
		b.applied = append(b.applied, applied{head.Identity, head.Verb, c.State, c.Reason})
	}
	head.State = c.State
	if c.State > table.StateStored {
		g.Head = nil
		g.Ended[head.Number] = c.End()
	}
}
