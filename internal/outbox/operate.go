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

const (
	// operateWidth is how many identities are worked on at the same time; the
	// operations of one go one after the other.
	operateWidth = 16
	// clockMargin is how far the clocks of a Cluster's nodes may be apart, so that
	// no operation hits a message that was committed after it and is in Redis by its
	// producer's fast path. An operation on what came that shortly before waits for
	// the next round.
	clockMargin = 50 * time.Millisecond
)

// operate applies a batch of operations of the queues.
func (l *lane) operate(ctx context.Context, look outlook, queues []string, after cursor) (o outcome, err error) {
	b, err := l.relay.batch(ctx, look)
	if err != nil {
		return o, err
	}
	o.tallies = b.tallies
	err = l.relay.transact(ctx, b.known, func(work context.Context, t *transaction) error {
		most := min(l.relay.config.Batch, batchRows)
		rows, err := l.relay.db.lockOperations(work, t.tx, queues, after, most)
		if err != nil || len(rows) == 0 {
			return err
		}
		o.full = len(rows) == most
		o.last = cursor{number: rows[len(rows)-1].number}
		list := make([]identity, len(rows))
		for i, r := range rows {
			list[i] = r.identity
		}
		groups, busy, err := l.relay.db.gather(work, t.tx, list)
		if err != nil {
			return err
		}
		for it := range busy {
			b.tally(it.queue).waiting++
		}
		if err := b.readLives(work, t.tx); err != nil {
			return err
		}
		if groups, err = b.completeHeads(work, t.tx, groups); err != nil {
			return err
		}
		redis, cancel := t.redis(ctx)
		defer cancel()
		b.operateAll(redis, groups)
		return l.relay.db.write(work, t.tx, &b.updates)
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
			defer b.guard(ctx, g.queue)
			b.operateGroup(ctx, g)
			return nil
		})
	}
	_ = working.Wait() // None returns an error.
}

// completeHeads reads the bodies of messages that may have to be put before an
// operation can be judged; groups for which there is no room are left out.
func (b *batch) completeHeads(ctx context.Context, tx querier, groups []*group) ([]*group, error) {
	var rest []*group
	var heads []*row
	var bytes int64
	for _, g := range groups {
		if b.mustPut(g) || b.mustPutBack(ctx, g) {
			if bytes += g.head.content.size; bytes > batchBytes && len(heads) > 0 {
				b.tally(g.queue).waiting++
				continue
			}
			heads = append(heads, g.head)
		}
		rest = append(rest, g)
	}
	return rest, b.relay.db.complete(ctx, tx, heads)
}

// mustPut reports whether the group has an operation that is older than the
// message's pending row, which may be in Redis already: then the operation is
// about an earlier message, and must not hit the later one.
func (b *batch) mustPut(g *group) bool {
	return g.head != nil && g.head.state == statePending && len(g.operations) > 0 &&
		g.operations[0].number < g.head.number && (g.head.tried || b.loadable(g.head))
}

func (b *batch) loadable(r *row) bool { return r.dueMs <= b.look.untilMs() }

// operateGroup applies the operations of one identity until one must wait.
func (b *batch) operateGroup(ctx context.Context, g *group) {
	q := b.relay.queues[g.queue]
	for _, op := range g.operations {
		v, err := b.operateOne(ctx, q, g, op)
		b.set(op, v.op, err)
		b.setHead(g, v.head)
		g.note(op, v.op)
		if v.stop {
			return
		}
	}
}

// operateOne decides about one operation, and asks Redis where the table alone
// does not tell.
func (b *batch) operateOne(ctx context.Context, q *Queue, g *group, op *row) (verdict, error) {
	if err := op.checkOperation(); err != nil {
		return verdict{op: update{state: stateRefused, reason: err.Error()}}, nil //nolint:nilerr // The row says it.
	}
	if v, ok := g.judgeByTable(op); ok {
		return v, nil
	}
	s := situation{
		verb: op.verb, place: g.place(op), repeated: b.known.forgotten(op), cancelled: g.cancelled,
		op: moved{token: op.token, dueMs: op.dueMs, revision: op.number},
	}
	if g.head != nil && g.head.number > op.number && (g.head.tried || b.loadable(g.head)) {
		if v, ok, err := b.putFirst(ctx, q, g, s); ok {
			return v, err
		}
	}
	o := store.Operation{ID: op.id, Key: op.key, Token: op.token, Seen: b.look.now.Add(-clockMargin)}
	if s.place == placeStored && b.mustPutBack(ctx, g) {
		if v, ok, err := b.putBack(ctx, q, g, s); ok {
			return v, err
		}
	}
	if s.place == placePending {
		o.Target = g.head.token
		s.forgotten = b.known.forgotten(g.head)
	}
	var answer store.Answer
	if op.verb == verbCancel {
		answer = q.Store.CancelRow(ctx, o)
	} else {
		answer = q.Store.RescheduleRow(ctx, o, op.dueAt())
	}
	if s.place == placeStored && answer.Err == nil && answer.Code == store.NotFound && b.madeAnew(ctx, q) {
		return verdict{stop: true}, nil // Redis was wiped just now, and has it no more.
	}
	return b.relay.decider.judge(s, answer), answer.Err
}

// note remembers what a cancel has done, for the operations after it: where the
// message's row was deleted, nothing else tells.
func (g *group) note(op *row, c update) {
	if op.verb != verbCancel || !op.target.Valid || c.state != stateCancelled && c.state != stateUnknown {
		return
	}
	if _, known := g.ended[op.target.Int64]; !known && (g.head == nil || g.head.number != op.target.Int64) {
		g.ended[op.target.Int64] = c.end()
	}
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
	case g.head == nil:
		return v, false
	case g.head.number < op.number:
		// A row that came between the operation and the one that it saw.
		return late(), op.target.Valid && op.target.Int64 != g.head.number
	default:
		// A later message under the same identity is in Redis.
		return late(), g.head.state == stateStored
	}
}

// place is where the message of an operation is.
func (g *group) place(op *row) place {
	switch {
	case g.head != nil && g.head.number < op.number && g.head.state == statePending:
		return placePending
	case g.head != nil && g.head.number < op.number:
		return placeStored
	case op.target.Valid, g.published:
		return placeGone
	default:
		return placeUnlisted
	}
}

// putFirst puts a message that is later than the operation. Where that works, the
// one that the operation means has left Redis; where another message is in the
// way, that is it, and ok is false: the operation may go on.
func (b *batch) putFirst(ctx context.Context, q *Queue, g *group, s situation) (v verdict, ok bool, err error) {
	put, err := b.prepareRow(q, g.head)
	if err != nil {
		return verdict{}, false, nil //nolint:nilerr // It was never stored, and will be refused.
	}
	answer := q.Store.Put(ctx, []store.Row{put})[0]
	switch failureOf(answer.Err) {
	case failureLater, failureInvalid:
		return verdict{stop: true}, true, answer.Err
	case failureUnsure:
		return verdict{head: update{tried: true}, stop: true}, true, answer.Err
	case failureNone:
	}
	switch answer.Code {
	case store.Waiting, store.InFlight, store.Dead:
		return verdict{}, false, nil
	default:
		v = b.relay.decider.judgeNotFound(s)
		v.head = b.relay.decider.put(answer)
		return v, true, nil
	}
}

// setHead records what becomes of the message's row, for the next operation too.
func (b *batch) setHead(g *group, c update) {
	if c.isZero() || g.head == nil {
		return
	}
	head := g.head
	head.tried = head.tried || c.tried
	if c.move != nil {
		head.token, head.dueMs, head.revision = c.move.token, c.move.dueMs, c.move.revision
		c.tried = c.tried || head.tried
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.updates.set(head.number, c)
	was := head.state
	switch {
	case c.remove:
		g.head = nil
		b.applied = append(b.applied, applied{head.identity, head.verb, stateStored, ""})
	case c.state > stateStored:
		g.head = nil
		g.ended[head.number] = c.end()
		b.applied = append(b.applied, applied{head.identity, head.verb, c.state, c.reason})
	case c.state == stateStored:
		head.state = stateStored
		if was == statePending {
			b.applied = append(b.applied, applied{head.identity, head.verb, c.state, ""})
		}
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
