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

// operate applies a batch of a queue's operations, once it is noted that it may.
func (l *lane) operate(ctx context.Context, look outlook, work table.Work) (outcome, error) {
	o, noted, err := l.operateNoted(ctx, look, work, true)
	if noted && err == nil {
		o, _, err = l.operateNoted(ctx, look, work, false)
	}
	return o, err
}

// operateNoted applies a batch of those operations of which it is noted that they may be
// tried. With note it notes that of the others first, if there are any, and does nothing else then.
func (l *lane) operateNoted(ctx context.Context, look outlook, work table.Work, note bool) (o outcome, noted bool, err error) {
	b, err := l.relay.batch(ctx, look, work.Queue)
	if err != nil {
		o, err = l.unpinned(ctx, work.Queue, l.relay.outages.operations, err)
		return o, false, err
	}
	err = l.relay.transact(ctx, look, func(inside context.Context, t *transaction) error {
		work.Blocked, work.Most = l.relay.blocked.list(work.Queue), min(l.relay.config.Batch, table.BatchRows)
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
		if numbers := unnoted(groups); note && len(numbers) > 0 {
			noted = true
			return t.Note(inside, numbers)
		}
		b.wait(len(busy), nil)
		b.reads(inside, t)
		redis, cancel := t.redis(ctx)
		defer cancel()
		b.operateAll(redis, groups)
		o = b.outcome(rows[len(rows)-1], len(rows) == work.Most)
		return t.Write(inside, b.updates)
	})
	if l.disown(ctx, work.Queue, l.relay.outages.operations, err) {
		return outcome{waiting: 1}, false, nil
	}
	switch {
	case err != nil:
		b.restLiving(ctx)
	case !noted:
		o.crowded = b.report(ctx, l.relay.outages.operations)
	}
	return o, noted, err
}

// unnoted are the numbers of the reschedules that a producer may still change.
func unnoted(groups []*table.Group) (numbers []int64) {
	for _, g := range groups {
		for _, op := range g.Operations {
			if op.IsUnnoted() {
				numbers = append(numbers, op.Number)
			}
		}
	}
	return numbers
}

// restLiving lets those replaces rest that could not go live: it may be that a transaction is
// open in which their id was scheduled, and the others need not wait for that again.
func (b *batch) restLiving(ctx context.Context) {
	var rows []blockedRow
	for number, update := range b.updates {
		if update.Lives {
			rows = append(rows, blockedRow{table.Identity{Queue: b.queue.Name}, number, "another transaction schedules that id"})
		}
	}
	b.relay.blocked.add(ctx, b.queue.Name, rows)
}

// reads has bodies be read through a transaction.
func (b *batch) reads(ctx context.Context, t *transaction) {
	b.bodies.complete = func(r *table.Row) error { return t.Complete(ctx, []*table.Row{r}) }
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
		if op.IsUnnoted() {
			b.wait(1, nil) // It came since the others were noted.
			return
		}
		v, err := b.operateOne(ctx, g, op)
		if v.inTheWay != "" {
			b.block(op, v.inTheWay)
			return
		}
		b.set(op, v.op, err)
		b.setHead(g, v.head)
		if v.stop {
			return
		}
		if v.op.Lives {
			op.Verb = table.VerbSchedule
			g.Head = op
		}
	}
}

// operateOne decides about one operation, and asks Redis where the table alone
// does not tell. Redis is told the token of the row that the operation means, so it
// touches no other message of that id.
func (b *batch) operateOne(ctx context.Context, g *table.Group, op *table.Row) (verdict, error) {
	if err := op.CheckOperation(); err != nil {
		return refusal(err), nil
	}
	if op.Verb == table.VerbReplace {
		if why, err := b.unfit(op); why != nil || err != nil {
			return refusal(why), err
		}
	}
	if v, ok := judgeByTable(g, op); ok {
		return v, nil
	}
	s := situation{verb: op.Verb, marked: g.Head.Maybe, op: table.Moved{Token: op.Token, DueMs: op.DueMs, Revision: op.Number}}
	o := store.Operation{ID: op.ID, Key: op.Key, Token: op.Token, Target: g.Head.Token}
	var answer store.Answer
	if op.Verb != table.VerbReschedule {
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

// unfit says why a message could never be stored: it takes the place of none then.
func (b *batch) unfit(r *table.Row) (why, err error) {
	if !r.IsWhole() && !r.IsHuge() {
		b.bodies.Lock()
		defer b.bodies.Unlock()
		if err := b.bodies.complete(r); err != nil {
			return nil, err
		}
		defer r.Forget()
	}
	_, why = b.prepareRow(r)
	return why, nil
}

// maybeOut reports whether a copy of the row's message may be out, where Redis knows
// nothing of it. It asks Redis only where all else leaves that open, once a batch.
func (b *batch) maybeOut(ctx context.Context, r *table.Row) (bool, error) {
	maybe, ifOlder := b.look.maybeOut(r)
	if !ifOlder {
		return maybe, nil
	}
	b.born.asking <- struct{}{} // A mutex would keep a simulation's clock from going on.
	defer func() { <-b.born.asking }()
	if !b.born.known {
		b.born.known = true
		var shards []time.Time
		shards, b.born.err = b.redis.Born(ctx)
		for _, at := range shards {
			if at.After(b.born.last) {
				b.born.last = at
			}
		}
	}
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
