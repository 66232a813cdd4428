package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/store"
)

// operateWidth is how many identities are worked on at the same time; the
// operations of one go one after the other.
const operateWidth = 16

// operate applies a batch of a queue's operations.
func (l *lane) operate(ctx context.Context, look outlook, queue string, after cursor) (o outcome, err error) {
	b, err := l.relay.batch(ctx, look, queue)
	if err != nil {
		return l.unpinned(ctx, queue, l.relay.outages.operations, err)
	}
	err = l.relay.transact(ctx, look, func(inside context.Context, t *transaction) error {
		most := min(l.relay.config.Batch, batchRows)
		rows, err := l.relay.db.lockOperations(inside, t.tx, work{queue: queue, after: after, most: most})
		if err != nil || len(rows) == 0 {
			return err
		}
		list := make([]identity, len(rows))
		for i, r := range rows {
			list[i] = r.identity
		}
		groups, busy, err := l.relay.db.gather(inside, t.tx, list)
		if err != nil {
			return err
		}
		b.wait(len(busy), nil)
		redis, cancel := t.redis(ctx)
		defer cancel()
		b.operateAll(redis, groups)
		o = b.outcome(rows[len(rows)-1], len(rows) == most)
		return l.relay.db.write(inside, t.tx, &b.updates)
	})
	if err == nil {
		b.report(ctx, l.relay.outages.operations)
	}
	return o, err
}

func (b *batch) operateAll(ctx context.Context, groups []*group) {
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

func (b *batch) isLoadable(r *row) bool { return r.dueMs <= b.look.untilMs() }

// operateGroup applies the operations of one identity until one must wait.
func (b *batch) operateGroup(ctx context.Context, g *group) {
	for _, op := range g.operations {
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
func (b *batch) operateOne(ctx context.Context, g *group, op *row) (verdict, error) {
	if err := op.checkOperation(); err != nil {
		return verdict{op: update{state: stateRefused, reason: err.Error()}}, nil //nolint:nilerr // The row says it.
	}
	if v, ok := g.judgeByTable(op); ok {
		return v, nil
	}
	s := situation{verb: op.verb, op: moved{token: op.token, dueMs: op.dueMs, revision: op.number}}
	o := store.Operation{ID: op.id, Key: op.key, Token: op.token, Target: g.head.token}
	var answer store.Answer
	if op.verb == verbCancel {
		answer = b.redis.CancelRow(ctx, o)
	} else {
		answer = b.redis.RescheduleRow(ctx, o, op.dueAt())
	}
	if answer.Err == nil && answer.Code == store.NotFound {
		var err error
		if s.maybe, err = b.maybeOut(ctx, g.head); err != nil {
			return verdict{stop: true}, err
		}
	}
	return judge(s, answer), answer.Err
}

// maybeOut reports whether a copy of the row's message may be out, where Redis knows
// nothing of it. It asks Redis only where all else leaves that open, once a batch.
func (b *batch) maybeOut(ctx context.Context, r *row) (bool, error) {
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

// judgeByTable decides where Redis need not be asked.
func (g *group) judgeByTable(op *row) (v verdict, ok bool) {
	if op.number < g.overtaken || g.head != nil && op.number < g.head.revision {
		return late(), true
	}
	if op.target.Valid {
		if how, found := g.ended[op.target.Int64]; found {
			return ended(op.verb, how), true
		}
	}
	switch {
	case g.head == nil && op.target.Valid:
		return ended(op.verb, statePending), true // Its row was deleted.
	case g.head == nil:
		return ended(op.verb, g.last), true
	case g.head.number > op.number:
		return ended(op.verb, statePending), true // A later message under that id.
	default:
		// A row that came between the operation and the one that it saw.
		return late(), op.target.Valid && op.target.Int64 != g.head.number
	}
}

// setHead records what becomes of the message's row, for the next operation too.
func (b *batch) setHead(g *group, c update) {
	if c.isZero() || g.head == nil {
		return
	}
	head := g.head
	if c.move != nil {
		head.token, head.dueMs, head.revision = c.move.token, c.move.dueMs, c.move.revision
		head.maybe = head.maybe || c.move.maybe
		c.move.maybe = head.maybe
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.updates.set(head.number, c)
	if c.state == statePending {
		head.state = statePending
		return
	}
	if c.state != head.state {
		b.applied = append(b.applied, applied{head.identity, head.verb, c.state, c.reason})
	}
	head.state = c.state
	if c.state > stateStored {
		g.head = nil
		g.ended[head.number] = c.end()
	}
}

var errVerb = errors.New("op is neither 0, 1 nor 2")

// checkOperation reports why an operation can never be applied.
func (r *row) checkOperation() error {
	switch {
	case r.verb != verbCancel && r.verb != verbReschedule:
		return fmt.Errorf("%w: %d", errVerb, r.verb)
	case r.verb == verbReschedule && (r.dueMs < 0 || r.dueMs >= maxDueMs):
		return errDue
	case !message.IsRowToken(r.token):
		return errRowToken
	}
	return message.CheckIdentity(r.id, r.key)
}
