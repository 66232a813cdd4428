package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// operateWidth is how many identities are worked on at the same time; the
// operations of one go one after the other.
const operateWidth = 16

// batch is the work on the rows of a queue in one transaction.
type batch struct {
	verdicts
	relay   *Relay
	queue   *servedQueue
	redis   outbox.Store // of the queue, pinned
	outlook outlook
	// since is when the last part of the queue was made in Redis, zero if that is unknown;
	// it is asked once.
	since func() (time.Time, error)

	// reading is of 1: who holds it reads a body. It is held across I/O, where a mutex would
	// keep a simulation's clock from going on.
	reading chan struct{}
}

// batch begins the work with an outlook. Rows that its transaction reads before a
// loss of Redis are not written after it.
func (r *Relay) batch(ctx context.Context, o outlook, queue *servedQueue) (*batch, error) {
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	redis, err := queue.Store.Pin(ctx)
	if err != nil {
		return nil, err
	}
	return &batch{verdicts: newVerdicts(), relay: r, queue: queue, redis: redis, outlook: o}, nil
}

// load brings a batch of messages into Redis, whose rows are locked.
func (b *batch) load(ctx, redis context.Context, t *table.Tx, work table.Work) (o outcome, err error) {
	rows, err := t.LockHeads(ctx, work)
	if err != nil || len(rows) == 0 {
		return o, err
	}
	n := table.Affordable(rows)
	full := n < len(rows) || len(rows) == work.Most
	rows = rows[:n]
	if err := t.Complete(ctx, rows); err != nil {
		return o, err
	}
	if err := b.checkLife(ctx, t); err != nil {
		return o, err
	}
	b.put(redis, rows)
	return b.outcome(rows[n-1], full), t.Write(ctx, b.updates)
}

// put writes messages to Redis.
func (b *batch) put(ctx context.Context, rows []*table.Row) {
	defer b.guard(ctx, &b.verdicts)
	good := make([]*table.Row, 0, len(rows))
	puts := make([]store.Row, 0, len(rows))
	for _, r := range rows {
		put, err := b.prepareRow(r)
		if err != nil {
			b.refuse(r, err)
			continue
		}
		good = append(good, r)
		puts = append(puts, put)
	}
	if len(puts) == 0 {
		return
	}
	for i, answer := range b.redis.Put(ctx, puts) {
		b.verdicts.recordPut(good[i], answer)
	}
}

var errHuge = errors.New("headers and body are too large to read")

func (b *batch) prepareRow(r *table.Row) (store.Row, error) {
	if r.IsHuge() {
		return store.Row{}, fmt.Errorf("%w: %d bytes", errHuge, r.Content.Size)
	}
	m, err := r.Message(b.queue.Sink, b.queue.MaxMessage)
	if err != nil {
		return store.Row{}, err
	}
	return store.Row{Token: r.Token, Message: m, DueAt: m.DueAt, Mark: b.outlook.markOf(r), Made: b.outlook.made(r)}, nil
}

// operate applies a batch of operations. If a producer may still change some, it only
// notes that this is over.
func (b *batch) operate(ctx, redis context.Context, t *table.Tx, work table.Work, note bool) (o outcome, noted bool, err error) {
	work.Most = min(work.Most, table.BatchRows)
	rows, err := t.LockOperations(ctx, work)
	if err != nil || len(rows) == 0 {
		return o, false, err
	}
	list := make([]table.Identity, len(rows))
	for i, r := range rows {
		list[i] = r.Identity
	}
	groups, busy, err := t.Gather(ctx, list)
	if err != nil {
		return o, false, err
	}
	if noted, err := b.begin(ctx, t, groups, note); noted || err != nil {
		return o, noted, err
	}
	b.wait(len(busy), nil)
	b.operateAll(ctx, redis, t, groups)
	return b.outcome(rows[len(rows)-1], len(rows) == work.Most), false, t.Write(ctx, b.updates)
}

// begin comes before operations are applied: they must belong to this Redis, and no producer may
// change them any longer; those for which it only notes that wait for the next transaction.
func (b *batch) begin(ctx context.Context, t *table.Tx, groups []*table.Group, note bool) (noted bool, err error) {
	if err := b.checkLife(ctx, t); err != nil {
		return false, err
	}
	var numbers []int64
	for _, g := range groups {
		for _, op := range g.Operations {
			if op.IsUnnoted() {
				numbers = append(numbers, op.Number)
			}
		}
	}
	if len(numbers) == 0 || !note {
		return false, nil
	}
	return true, t.Note(ctx, numbers)
}

// checkLife is for batches that have locked their rows: what they bring to Redis belongs
// there.
func (b *batch) checkLife(ctx context.Context, t *table.Tx) error {
	rows, err := t.Life(ctx, b.queue.Name, b.redis.Life())
	if err != nil {
		return err
	}
	return outbox.CheckLife(b.queue.Name, b.redis.Life(), rows.Name, rows.Silent)
}

func (b *batch) operateAll(ctx, redis context.Context, t *table.Tx, groups []*table.Group) {
	b.since, b.reading = b.bornOnce(redis), make(chan struct{}, 1)
	var working errgroup.Group
	working.SetLimit(operateWidth)
	judged := make([]*judgement, len(groups))
	for i, g := range groups {
		judged[i] = newJudgement(b.outlook, g)
		working.Go(func() error {
			b.judge(ctx, redis, t, judged[i])
			return nil
		})
	}
	_ = working.Wait() // None returns an error.
	for _, j := range judged {
		b.join(&j.verdicts)
	}
}

// judge answers the questions of a judgement.
func (b *batch) judge(ctx, redis context.Context, t *table.Tx, j *judgement) {
	defer b.guard(ctx, &j.verdicts)
	for q := j.next(); q.row != nil; q = j.next() {
		if q.fit {
			if why, err := b.unfit(ctx, t, q.row); err != nil {
				j.end(1, err)
			} else {
				j.fits(why)
			}
			continue
		}
		var answer store.Answer
		if q.row.Verb == table.VerbReschedule {
			answer = b.redis.RescheduleRow(redis, q.operation, q.row.DueAt())
		} else {
			answer = b.redis.CancelRow(redis, q.operation)
		}
		var since time.Time
		if q.ifUnknown && answer.Err == nil && answer.Code == store.NotFound {
			since, answer.Err = b.since()
		}
		j.takeAnswer(answer, since)
	}
}

// bornOnce is bornLast, which is asked once. Whoever waits for it waits by a channel, as for
// reading.
func (b *batch) bornOnce(ctx context.Context) func() (time.Time, error) {
	asking, isKnown := make(chan struct{}, 1), false
	var last time.Time
	var err error
	return func() (time.Time, error) {
		asking <- struct{}{}
		defer func() { <-asking }()
		if !isKnown {
			last, err = b.bornLast(ctx)
			isKnown = true
		}
		return last, err
	}
}

// bornLast is when the last part of the queue was made in Redis, zero if that is unknown.
func (b *batch) bornLast(ctx context.Context) (last time.Time, err error) {
	shards, err := b.redis.Born(ctx)
	for _, at := range shards {
		if at.After(last) {
			last = at
		}
	}
	return last, err
}

// unfit returns why a message could never be stored, so that it replaces none.
func (b *batch) unfit(ctx context.Context, t *table.Tx, r *table.Row) (why, err error) {
	if !r.IsWhole() && !r.IsHuge() {
		b.reading <- struct{}{}
		defer func() { <-b.reading }()
		if err := t.Complete(ctx, []*table.Row{r}); err != nil {
			return nil, err
		}
		defer r.Forget()
	}
	_, why = b.prepareRow(r)
	return why, nil
}

// guard survives a panic: unfinished rows wait.
func (b *batch) guard(ctx context.Context, v *verdicts) {
	cause := recover()
	if cause == nil {
		return
	}
	err := fmt.Errorf("panic: %v", cause)
	v.wait(1, err)
	b.relay.log.ErrorContext(ctx, "outbox relay panicked", "event", "outbox_panic", "queue", b.queue.Name, "err", err)
}

// tell reports what was committed to observer and log.
func (b *batch) tell(ctx context.Context) {
	for _, a := range b.applied {
		b.relay.observer.Applied(a.Queue, a.verb.String(), a.state.String())
		if a.state == table.StateRefused {
			b.relay.refusals.say(ctx, a)
		}
	}
}

// report is tell, and also logs what the rows have shown of Redis. It reports whether
// more rows are blocked than can be tracked.
func (b *batch) report(ctx context.Context, away *outbox.Outage) (crowded bool) {
	b.tell(ctx)
	b.relay.blocked.remove(b.queue.Name, b.updates)
	crowded = b.relay.blocked.add(ctx, time.Now(), b.queue.Name, b.blocked)
	if errors.Is(b.err, store.ErrReload) {
		return crowded // Nothing is away: the next round knows the layout.
	}
	err := b.err
	if errors.Is(err, store.ErrUnavailable) && b.settled > 0 {
		err = fmt.Errorf("for some of its messages: %w", err)
	}
	away.Observe(ctx, err)
	return crowded
}

// rest lets replacements rest that could not go live: a transaction that scheduled their id may
// be open, and the others need not wait for that again. If all waited for that transaction, because
// there is only one, all rest.
func (b *batch) rest(ctx context.Context, all bool) {
	var rows []blockedRow
	for number, update := range b.updates {
		if all || update.Lives {
			rows = append(rows, blockedRow{table.Identity{Queue: b.queue.Name}, number, "another transaction schedules that id, or one beside it"})
		}
	}
	b.relay.blocked.add(ctx, time.Now(), b.queue.Name, rows)
}
