package trial

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
)

const (
	// defaultProducers is how many write at the same time.
	defaultProducers = 10
	// mostMessages is how many a transaction writes at most.
	mostMessages = 20
	// mostChanges is how many messages wait for their operation at the same time.
	mostOperations = 2000
	// businessLimit is when a transaction is given up: nothing may take as long.
	businessLimit = 90 * time.Second
)

// Business is a group of producers that write messages in their own transactions,
// of which one in four is rolled back. They cancel and reschedule some: in the
// same transaction, right after its commit while a relay loads them, at any
// moment, or about when they are due. One transaction in three takes the fast
// path, and one in ten stays open for a while, so that later ones overtake it.
type Business struct {
	Database *Database
	Box      *outbox.Outbox
	// Queue and Topic are the messages'.
	Queue, Topic string
	// Rate is in messages a second, of all producers.
	Rate int
	// Spread is the longest delay of a message.
	Spread time.Duration
	Seed   uint64
	// Producers is how many write at the same time, by default 10.
	Producers int
	Book      *Book
	// Calls notes how long transactions and pushes took.
	Calls *Calls

	number     atomic.Int64
	operations errgroup.Group
}

// Run produces until ctx ends, and finishes what is under way.
func (b *Business) Run(ctx context.Context) error {
	b.Producers = cmp.Or(b.Producers, defaultProducers)
	b.operations.SetLimit(mostOperations)
	var group errgroup.Group
	for i := range b.Producers {
		random := rand.New(rand.NewPCG(b.Seed, uint64(i))) //nolint:gosec // a seed makes the run repeatable
		group.Go(func() error { return b.produce(ctx, random) })
	}
	return errors.Join(group.Wait(), b.operations.Wait())
}

func (b *Business) produce(ctx context.Context, random *rand.Rand) error {
	calls := context.WithoutCancel(ctx)
	for next := time.Now(); ctx.Err() == nil; {
		size := 1 + random.IntN(mostMessages)
		if err := b.transact(calls, random, size); err != nil {
			return err
		}
		next = next.Add(time.Second * time.Duration(size*b.Producers) / time.Duration(b.Rate))
		if time.Since(next) > time.Second { // What the database did not take is not made up for.
			next = time.Now()
		}
		_ = Sleep(ctx, time.Until(next)) // Less long at the end.
	}
	return nil
}

// deal is one business transaction.
type deal struct {
	business *Business
	id       string
	tx       *sql.Tx
	began    time.Time
	rested   time.Duration // on purpose
	rollback bool
}

// begin begins a transaction and writes its business row; nil if the
// database is down.
func (b *Business) begin(ctx context.Context, rollback bool) *deal {
	d := &deal{business: b, id: fmt.Sprintf("tx-%d-%d", b.Seed, b.number.Add(1)), began: time.Now(), rollback: rollback}
	var err error
	if d.tx, err = b.Database.DB.BeginTx(ctx, nil); err == nil {
		_, err = d.tx.ExecContext(ctx, "INSERT INTO business (id) VALUES ("+b.Database.bind()+")", d.id)
	}
	if err != nil {
		d.fail(err)
		return nil
	}
	return d
}

// fail ends a transaction that an error has stopped: nothing was committed.
func (d *deal) fail(err error) {
	d.business.Calls.Took("broken transaction", time.Since(d.began)-d.rested, err)
	if d.tx != nil {
		_ = d.tx.Rollback()
	}
	time.Sleep(100 * time.Millisecond) //nolint:forbidigo // the database is away
}

// end commits or rolls back; true means that it was certainly committed. Otherwise
// the business table shows in the end whether it was.
func (d *deal) end() bool {
	var err error
	if d.rollback {
		err = d.tx.Rollback()
	} else {
		d.business.Book.try(d.id)
		err = d.tx.Commit()
	}
	if err != nil {
		d.fail(err)
		return false
	}
	d.business.Calls.Took("transaction", time.Since(d.began)-d.rested, nil)
	if !d.rollback {
		d.business.Book.commit(d.id)
	}
	return !d.rollback
}

// transact writes messages in one transaction, and changes some later. Its
// error is one that no outage explains.
func (b *Business) transact(ctx context.Context, random *rand.Rand, size int) error {
	ctx, cancel := context.WithTimeout(ctx, businessLimit)
	defer cancel()
	d := b.begin(ctx, random.IntN(4) == 0)
	if d == nil {
		return ctx.Err()
	}
	var (
		tx      outbox.Tx = d.tx
		tracked *outbox.Tracked
	)
	if random.IntN(3) == 0 {
		tracked = b.Box.Track(d.tx)
		tx = tracked
	}
	refs, err := d.schedule(ctx, tx, random, size)
	if err == nil && random.IntN(10) == 0 {
		err = d.operate(ctx, tx, refs[random.IntN(len(refs))], random)
	}
	if err != nil {
		d.fail(err)
		return errors.Join(ctx.Err(), unexpected(err))
	}
	if random.IntN(10) == 0 {
		d.rested = relayPoll + time.Duration(random.Int64N(int64(time.Second)))
		time.Sleep(d.rested) //nolint:forbidigo // others overtake it
	}
	if !d.end() {
		return ctx.Err()
	}
	if tracked != nil {
		pushed := time.Now()
		err := tracked.Push(ctx)
		b.Calls.Took("push", time.Since(pushed), err)
	}
	b.later(context.WithoutCancel(ctx), refs, random)
	return nil
}

// unexpected are errors that the database's absence does not explain.
func unexpected(err error) error {
	if errors.Is(err, delay.ErrInvalid) || errors.Is(err, delay.ErrDuplicate) || errors.Is(err, delay.ErrNotFound) {
		return err
	}
	return nil
}

// schedule writes messages, in one statement or one by one.
func (d *deal) schedule(ctx context.Context, tx outbox.Tx, random *rand.Rand, size int) ([]delay.Ref, error) {
	requests := make([]delay.Request, size)
	refs := make([]delay.Ref, size)
	for i := range requests {
		m := delay.Message{
			ID: fmt.Sprintf("%s-%d", d.id, i), Topic: d.business.Topic, Body: []byte(d.id), Headers: map[string]string{"n": fmt.Sprint(i)},
		}
		if random.IntN(2) == 0 {
			m.Key = fmt.Sprintf("key-%d", random.IntN(100))
		}
		requests[i] = delay.Request{Message: m, When: delay.At(ceil(time.Now().Add(d.business.wait(random))))}
		refs[i] = delay.Ref{ID: m.ID, Key: m.Key}
	}
	if random.IntN(2) == 0 {
		requests[0].When = delay.After(d.business.wait(random)) // The database's clock decides.
	}
	if random.IntN(2) == 0 {
		if _, err := d.business.Box.ScheduleBatch(ctx, tx, d.business.Queue, requests); err != nil {
			return nil, err
		}
	} else {
		for _, r := range requests {
			if _, err := d.business.Box.Schedule(ctx, tx, d.business.Queue, r.Message, r.When); err != nil {
				return nil, err
			}
		}
	}
	first, err := d.business.Box.Get(ctx, tx, d.business.Queue, refs[0])
	if err != nil {
		return nil, err
	}
	d.business.Book.number(d.id, first.Revision)
	requests[0].When = delay.At(first.DueAt)
	for _, r := range requests {
		due, _ := r.When.Instant()
		d.business.Book.schedule(d.id, r.Message, due)
	}
	return refs, nil
}

func (b *Business) wait(random *rand.Rand) time.Duration {
	return time.Duration(random.Int64N(int64(b.Spread)))
}

// ceil rounds up to milliseconds.
func ceil(at time.Time) time.Time {
	if cut := time.UnixMilli(at.UnixMilli()); cut.Before(at) {
		return cut.Add(time.Millisecond)
	}
	return time.UnixMilli(at.UnixMilli())
}

// operate cancels, or reschedules, in a transaction.
func (d *deal) operate(ctx context.Context, tx outbox.Tx, ref delay.Ref, random *rand.Rand) error {
	c := bookedOperation{tx: d.id, cancel: random.IntN(2) == 0}
	if c.cancel {
		d.business.Book.operate(ref.ID, c)
		return d.business.Box.Cancel(ctx, tx, d.business.Queue, ref)
	}
	c.due = ceil(time.Now().Add(d.business.wait(random)))
	d.business.Book.operate(ref.ID, c)
	return d.business.Box.Reschedule(ctx, tx, d.business.Queue, ref, delay.At(c.due))
}

// later changes some of the messages, each in its own transaction, and
// some of those twice.
func (b *Business) later(ctx context.Context, refs []delay.Ref, random *rand.Rand) {
	for _, ref := range refs {
		if random.IntN(4) != 0 {
			continue
		}
		for range 1 + random.IntN(2) {
			seed := random.Uint64()
			b.operations.TryGo(func() error {
				return b.operateLater(ctx, ref, rand.New(rand.NewPCG(seed, 1))) //nolint:gosec // a seed makes the run repeatable
			})
		}
	}
}

func (b *Business) operateLater(ctx context.Context, ref delay.Ref, random *rand.Rand) error {
	var wait time.Duration
	switch random.IntN(3) {
	case 0: // Now, or while a relay loads it: it looks five times a second.
		wait = time.Duration(random.Int64N(int64(300 * time.Millisecond)))
	case 1:
		wait = time.Until(b.Book.due(ref.ID)) + time.Duration(random.Int64N(int64(200*time.Millisecond))) - 100*time.Millisecond
	default:
		wait = b.wait(random)
	}
	if err := Sleep(ctx, wait); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, businessLimit)
	defer cancel()
	d := b.begin(ctx, random.IntN(4) == 0)
	if d == nil {
		return ctx.Err()
	}
	if err := d.operate(ctx, d.tx, ref, random); err != nil {
		d.fail(err)
		return errors.Join(ctx.Err(), unexpected(err))
	}
	d.end()
	return ctx.Err()
}
