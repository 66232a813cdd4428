package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// OutboxTrial runs two bridges with a relay each on one database, while
// producers write and things go wrong.
type OutboxTrial struct {
	// Options name the database.
	Options Options
	// Rate is in messages a second.
	Rate int
	// Spread is the longest delay of a message.
	Spread time.Duration
	Seed   uint64
	// Producers is how many write at the same time, by default 10.
	Producers int
	// Limit is how long the bridges may take to finish, by default 3 minutes: a
	// settlement that a dead one left behind is found within half a minute.
	Limit time.Duration
	// Happen is what goes wrong.
	Happen func(ctx context.Context, r *OutboxRun) error
}

// OutboxRun is a trial that is under way.
type OutboxRun struct {
	World *World

	incidents

	phases []OutboxPhase
	calls  *Calls
	seed   uint64
}

// OutboxPhase is a part of a trial.
type OutboxPhase struct {
	Name string
	// Longest is the longest call of each verb: "transaction" is one that the
	// database took part in to its end.
	Longest map[string]time.Duration
}

// OutboxOutcome is what a trial found.
type OutboxOutcome struct {
	Report  Report
	Totals  Totals
	Tally   Tally
	Phases  []OutboxPhase
	Answers map[string]int
	// Incidents are what went wrong, in the order of their ends; Verdict compares
	// them with what arrived.
	Incidents []Incident
	Verdict   Verdict
	// Ledger is how many settlements Redis still holds for the database.
	Ledger int64
	// Kills is how often a bridge was killed; Drained how long it took after the
	// producers' end until all was done.
	Kills   int
	Drained time.Duration
	Log     string
}

// Phase begins a part of the trial.
func (r *OutboxRun) Phase(name string) {
	r.endPhase()
	r.phases = append(r.phases, OutboxPhase{Name: name})
}

func (r *OutboxRun) endPhase() {
	longest := r.calls.Take()
	if n := len(r.phases); n > 0 {
		r.phases[n-1].Longest = longest
	}
}

// Run makes a world, runs the trial, and ends the world.
func (t OutboxTrial) Run(ctx context.Context) (*OutboxOutcome, error) {
	w, stop, err := newPair(ctx, t.Options)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	r := &OutboxRun{World: w, calls: &Calls{}, seed: t.Seed}
	business := &Business{
		Database: w.Database, Queue: w.setup.Queue, Topic: w.Topic, Rate: t.Rate, Spread: t.Spread, Seed: t.Seed, Producers: t.Producers,
		Book: NewBook(), Calls: r.calls,
	}
	var hangUp func()
	if business.Box, hangUp, err = w.Outbox(ctx); err != nil {
		return nil, errors.Join(err, stop())
	}
	defer hangUp()
	err = While(ctx, business.Run, func(ctx context.Context) error { return t.Happen(ctx, r) })
	r.endPhase()
	if err != nil {
		return nil, errors.Join(err, stop(), logOf(w))
	}
	return t.judge(ctx, r, business, stop)
}

// logOf returns what the bridges have printed.
func logOf(w *World) error {
	var text strings.Builder
	for _, b := range w.Bridges() {
		log := b.Log()
		text.WriteString(log[max(0, len(log)-4000):])
	}
	return errors.New("the bridges said:\n" + text.String())
}

// judge waits until nothing is left to do, and compares.
func (t OutboxTrial) judge(ctx context.Context, r *OutboxRun, business *Business, stop func() error) (*OutboxOutcome, error) {
	o := &OutboxOutcome{Phases: r.phases, Answers: r.calls.Counts}
	begin := time.Now()
	limit, cancel := context.WithTimeout(ctx, cmp.Or(t.Limit, 3*time.Minute))
	defer cancel()
	left := t.finished(limit, r.World)
	o.Drained = time.Since(begin)
	arriving, end := context.WithTimeout(ctx, time.Minute) // The limit may be used up.
	defer end()
	err := errors.Join(r.World.arrived(arriving), stop())
	var failure error
	o.Kills, o.Log, failure = r.World.stopAll()
	err = errors.Join(err, failure)
	if o.Tally, failure = business.Book.Close(ctx, r.World.Database, r.World.Ledger, r.list); failure != nil {
		return nil, errors.Join(err, failure)
	}
	if o.Totals, failure = r.World.Totals(ctx); failure != nil {
		return nil, errors.Join(err, failure)
	}
	o.Ledger, failure = r.World.settlements(ctx)
	o.Report, o.Incidents, o.Verdict = r.World.Ledger.Report(), r.list, r.World.Ledger.Judge(r.list)
	o.Report.OutOfOrder = 0 // Rows are loaded in no promised order.
	if left != nil {
		o.Report.Problems = append(o.Report.Problems, left.Error())
	}
	return o, errors.Join(err, failure)
}

// finished waits until no row waits, and nothing is in Redis.
func (t OutboxTrial) finished(ctx context.Context, w *World) error {
	for {
		pending, stored, err := w.Database.unfinished(ctx)
		var totals Totals
		if err == nil && pending+stored == 0 {
			if totals, err = w.Totals(ctx); err == nil && totals.Waiting+totals.InFlight == 0 {
				return nil
			}
		}
		if Sleep(ctx, 200*time.Millisecond) != nil {
			return fmt.Errorf("not finished: %d rows pending, %d stored, %+v: %w", pending, stored, totals, errors.Join(err, ctx.Err()))
		}
	}
}

// arrived waits until the consumer has had all that the broker stores.
func (w *World) arrived(ctx context.Context) error {
	for {
		stored, err := w.Broker.Stored(ctx, w.Topic)
		if err == nil && int64(w.Ledger.Arrived()) >= stored {
			return nil
		}
		if failure := Sleep(ctx, 200*time.Millisecond); failure != nil {
			return fmt.Errorf("the consumer did not get all %d: %w", stored, errors.Join(err, failure))
		}
	}
}

// settlements counts what Redis holds for the database.
func (w *World) settlements(ctx context.Context) (n int64, err error) {
	for shard := range w.setup.Shards {
		count, failure := w.RDB.HLen(ctx, w.shardKeys(shard, "settled")).Result()
		n, err = n+count, errors.Join(err, failure)
	}
	return n, err
}

// While runs background while happen runs, and then ends it.
func While(ctx context.Context, background, happen func(ctx context.Context) error) error {
	inner, end := context.WithCancel(ctx)
	var (
		wg  sync.WaitGroup
		err error
	)
	wg.Go(func() { err = background(inner) })
	failure := happen(ctx)
	end()
	wg.Wait()
	return errors.Join(failure, err)
}
