package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// batch is the work on the rows of a queue in one transaction.
type batch struct {
	relay *Relay
	queue *outbox.Queue
	redis outbox.Store // of the queue, pinned
	look  outlook
	born  born
	// bodies reads headers and bodies, for one at a time.
	bodies struct {
		sync.Mutex
		complete func(*table.Row) error
	}

	mu      sync.Mutex
	updates table.Updates
	applied []applied
	tally   tally
}

// born is since when Redis has all that it has of the queue, zero where that is
// unknown; see batch.maybeOut.
type born struct {
	asking chan struct{} // of 1: held by whoever asks
	known  bool
	last   time.Time
	err    error
}

// batch begins the work on what was seen. What its transaction reads before Redis
// loses something it does not write after that.
func (r *Relay) batch(ctx context.Context, look outlook, queue string) (*batch, error) {
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	redis, err := r.queues[queue].Store.Pin(ctx)
	if err != nil {
		return nil, err
	}
	return &batch{relay: r, queue: r.queues[queue], redis: redis, look: look, born: born{asking: make(chan struct{}, 1)}, updates: table.Updates{}}, nil
}

// applied is what the observer is told once the transaction is committed.
type applied struct {
	table.Identity
	verb   table.Verb
	state  table.State
	reason string
}

// tally is how the rows of a batch fared.
type tally struct {
	settled, waiting int
	blocked          []blockedRow
	err              error // one of those why rows wait, if any is known
}

// put writes messages to Redis.
func (b *batch) put(ctx context.Context, rows []*table.Row) {
	defer b.guard(ctx)
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
		b.putAnswered(good[i], answer)
	}
}

func (b *batch) putAnswered(r *table.Row, answer store.Answer) {
	if why := inTheWay(answer); why != "" {
		b.block(r, why)
		return
	}
	b.set(r, judgePut(answer), answer.Err)
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
	return store.Row{Token: r.Token, Message: m, DueAt: m.DueAt, Mark: b.look.markOf(r), Made: b.made(r)}, nil
}

const (
	// clockMargin is how far the clocks of Redis' nodes may be apart.
	clockMargin = 2 * time.Second
	// skewMargin is how wrong the measured difference of the clocks of database and
	// Redis may be, unknownSkew what it may be before it was measured.
	skewMargin, unknownSkew = 2 * time.Second, time.Minute
	// tombstone is how long Redis remembers how a token has ended, see [store.Row].
	tombstone = time.Minute
	// remembered is for how long after it was due Redis certainly knows what became
	// of a message, at the moment at which the look is made: what follows may take
	// a while, too.
	remembered = tombstone - redisPhase - startWithin - clockMargin
)

// markOf is when a pending row's message is marked. It may have been published
// by a producer's own put, and Redis have lost that since; or its row was told, before
// a failover of the database took that back: then it was due for longer than Redis
// remembers.
func (o outlook) markOf(r *table.Row) store.Mark {
	if r.Maybe || o.now.Sub(r.DueAt()) > remembered {
		return store.MarkAlways
	}
	return store.MarkDueIfOlder
}

// maybeOut reports whether a copy of the row's message may be out, where Redis knows
// nothing of it: by the same rules as the marks. ifOlder says that this is so where the
// row is older than what Redis has.
func (o outlook) maybeOut(r *table.Row) (maybe, ifOlder bool) {
	since := o.now.Sub(r.DueAt())
	switch {
	case r.Maybe || since > remembered:
		return true, false
	case since < -clockMargin:
		return false, false
	case r.State == table.StateStored:
		return true, false
	default:
		return false, true
	}
}

// made is when the row was made at the earliest, by Redis' clock.
func (b *batch) made(r *table.Row) time.Time {
	ahead := unknownSkew
	if skew := b.relay.skew.Load(); skew != nil {
		ahead = *skew + skewMargin
	}
	return time.UnixMilli(r.CreatedMs).Add(-ahead)
}

// set records what becomes of a row, and why where it waits.
func (b *batch) set(r *table.Row, c table.Update, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case c.Lives:
		b.tally.settled++
	case c.State == table.StatePending:
		b.tally.waiting++
		b.tally.err = err
	default:
		b.tally.settled++
		b.applied = append(b.applied, applied{r.Identity, r.Verb, c.State, c.Reason})
	}
	b.updates.Set(r.Number, c)
}

// block records that a row waits for another message of its id to leave.
func (b *batch) block(r *table.Row, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tally.blocked = append(b.tally.blocked, blockedRow{r.Identity, r.Number, why})
}

// refuse records that a row can never be stored.
func (b *batch) refuse(r *table.Row, why error) {
	b.set(r, table.Update{State: table.StateRefused, Reason: why.Error()}, nil)
}

// wait notes that rows must wait.
func (b *batch) wait(rows int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tally.waiting += rows
	b.tally.err = err
}

// guard survives a panic: the rows that were not done wait.
func (b *batch) guard(ctx context.Context) {
	cause := recover()
	if cause == nil {
		return
	}
	err := fmt.Errorf("panic: %v", cause)
	b.wait(1, err)
	b.relay.log.ErrorContext(ctx, "outbox relay panicked", "event", "outbox_panic", "queue", b.queue.Name, "err", err)
}

// tell tells observer and log what was committed.
func (b *batch) tell(ctx context.Context) {
	for _, a := range b.applied {
		b.relay.observer.Applied(a.Queue, a.verb.String(), a.state.String())
		if a.state == table.StateRefused {
			b.relay.refusals.say(ctx, a)
		}
	}
}

// report is tell, and says what the rows have told of Redis. It reports whether more of
// them are blocked than are told apart.
func (b *batch) report(ctx context.Context, outages map[string]*outbox.Outage) (crowded bool) {
	b.tell(ctx)
	b.relay.blocked.settled(b.queue.Name, b.updates)
	crowded = b.relay.blocked.add(ctx, b.queue.Name, b.tally.blocked)
	if errors.Is(b.tally.err, store.ErrReload) {
		return crowded // Nothing is away: the next round knows the layout.
	}
	var err error
	if b.tally.waiting > 0 && b.tally.err != nil {
		err = b.tally.err
		if errors.Is(err, store.ErrUnavailable) && b.tally.settled > 0 {
			err = fmt.Errorf("for some of its messages: %w", err)
		}
	}
	outages[b.queue.Name].Observe(ctx, err)
	return crowded
}

// outcome is how the batch went.
func (b *batch) outcome(last *table.Row, full bool) outcome {
	return outcome{settled: b.tally.settled, waiting: b.tally.waiting, blocked: len(b.tally.blocked), last: last.Cursor(), full: full}
}
