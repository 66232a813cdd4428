package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/delaybridge/delaybridge/internal/store"
)

// load brings a batch of messages of the queues into Redis.
func (l *lane) load(ctx context.Context, look outlook, queues []string, after cursor) (o outcome, err error) {
	b, err := l.relay.batch(ctx, look)
	if err != nil {
		return o, err
	}
	o.tallies = b.tallies
	err = l.relay.transact(ctx, b.known, func(work context.Context, t *transaction) error {
		rows, err := l.relay.db.lockHeads(work, t.tx, queues, look, after, l.relay.config.Batch)
		if err != nil || len(rows) == 0 {
			return err
		}
		n := affordable(rows)
		o.full = n < len(rows) || len(rows) == l.relay.config.Batch
		rows = rows[:n]
		o.last = cursor{rows[n-1].dueMs, rows[n-1].number}
		if err := l.relay.db.complete(work, t.tx, rows); err != nil {
			return err
		}
		redis, cancel := t.redis(ctx)
		defer cancel()
		b.put(redis, rows)
		return l.relay.db.write(work, t.tx, &b.updates)
	})
	if err == nil {
		b.report(ctx, l.relay.outages.queues)
	}
	return o, err
}

// batch is the work on the rows of one transaction.
type batch struct {
	relay *Relay
	look  outlook
	known evidence
	lives map[string]string // by queue, see putback.go

	mu      sync.Mutex
	updates updates
	applied []applied
	tallies map[string]*tally
}

// batch begins the work on what was seen.
func (r *Relay) batch(ctx context.Context, look outlook) (*batch, error) {
	if err := r.register(ctx); err != nil {
		return nil, err
	}
	known, err := r.db.evidence(ctx, r.config.Horizon)
	return &batch{relay: r, look: look, known: known, tallies: map[string]*tally{}}, err
}

// applied is what the observer is told once the transaction is committed.
type applied struct {
	identity
	verb   verb
	state  state
	reason string
}

// put writes messages to Redis, all queues at the same time, so that a queue
// that hangs holds up no other.
func (b *batch) put(ctx context.Context, rows []*row) {
	byQueue := map[string][]*row{}
	for _, r := range rows {
		byQueue[r.queue] = append(byQueue[r.queue], r)
	}
	var wg sync.WaitGroup
	for name, rows := range byQueue {
		wg.Go(func() {
			defer b.guard(ctx, name)
			b.putQueue(ctx, b.relay.queues[name], rows)
		})
	}
	wg.Wait()
}

func (b *batch) putQueue(ctx context.Context, q *Queue, rows []*row) {
	good := make([]*row, 0, len(rows))
	puts := make([]store.Row, 0, len(rows))
	for _, r := range rows {
		put, err := b.prepareRow(q, r)
		if err != nil {
			b.set(r, update{state: stateRefused, reason: err.Error()}, nil)
			continue
		}
		good = append(good, r)
		puts = append(puts, put)
	}
	if len(puts) == 0 {
		return
	}
	for i, answer := range q.Store.Put(ctx, puts) {
		b.set(good[i], b.relay.decider.put(answer), answer.Err)
	}
}

var errHuge = errors.New("headers and body are too large to read")

func (b *batch) prepareRow(q *Queue, r *row) (store.Row, error) {
	if r.content.size > hugeRow {
		return store.Row{}, fmt.Errorf("%w: %d bytes", errHuge, r.content.size)
	}
	m, err := r.message(q)
	if err != nil {
		return store.Row{}, err
	}
	return store.Row{Token: r.token, Message: m, DueAt: m.DueAt, Mark: store.MarkIf(b.known.forgotten(r))}, nil
}

// set records what becomes of a row, and why where it waits.
func (b *batch) set(r *row, c update, err error) {
	t := b.tally(r.queue)
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.state == statePending && !c.remove {
		t.waiting++
		t.err = err
	} else {
		t.settled++
		s := c.state
		if c.remove {
			s = stateStored
		}
		b.applied = append(b.applied, applied{r.identity, r.verb, s, c.reason})
	}
	b.updates.set(r.number, c)
}

// tally is that of a queue.
func (b *batch) tally(queue string) *tally {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tallies[queue] == nil {
		b.tallies[queue] = &tally{}
	}
	return b.tallies[queue]
}

// guard survives a panic: the rows that were not done wait.
func (b *batch) guard(ctx context.Context, queue string) {
	cause := recover()
	if cause == nil {
		return
	}
	b.relay.registry.unclean()
	t := b.tally(queue)
	b.mu.Lock()
	defer b.mu.Unlock()
	t.waiting++
	t.err = fmt.Errorf("panic: %v", cause)
	b.relay.log.ErrorContext(ctx, "outbox relay panicked", "event", "outbox_panic", "queue", queue, "err", t.err)
}

// report tells observer and log what was committed.
func (b *batch) report(ctx context.Context, outages map[string]*outage) {
	for _, a := range b.applied {
		b.relay.observer.Applied(a.queue, a.verb.String(), a.state.String())
		if a.state == stateRefused {
			b.relay.refusals.say(ctx, a)
		}
	}
	for name, t := range b.tallies {
		var err error
		if t.waiting > 0 && t.err != nil {
			err = t.err
			if errors.Is(err, store.ErrUnavailable) && t.settled > 0 {
				err = fmt.Errorf("for some of its messages: %w", err)
			}
		}
		outages[name].observe(ctx, err)
	}
}
