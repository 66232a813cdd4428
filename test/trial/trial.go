package trial

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/delaybridge/delaybridge/delay"
)

// Trial is a run of two bridges on a group of Redis servers, under a churn.
type Trial struct {
	Options Options

	// Durable has producers wait until all replicas have confirmed.
	Durable bool
	// Rate is in messages a second.
	Rate int
	// Before is how long the load runs before Happen, After how long it goes on.
	Before, After time.Duration
	// Impatient does not wait for claims that nobody settles any more, unless something is missing: a
	// failover may take a settlement back.
	Impatient bool
	// Happen is what goes wrong.
	Happen func(ctx context.Context, w *World) error
}

// Outcome is what a trial found.
type Outcome struct {
	Report  Report
	Totals  Totals
	Answers map[string]int
	// Steady is from when the bridges had their shards until Happen, Trouble
	// from then on to the end of the load.
	Steady, Trouble Phase
	// Longest is the longest call of each verb since the bridges had their shards.
	Longest map[string]time.Duration
	// Resumed is the first arrival of each shard after an instant.
	Resumed func(since time.Time) []time.Time
	// Log is what the bridges have printed.
	Log string
}

// Run makes a world, and ends it.
func (t Trial) Run(ctx context.Context) (*Outcome, error) {
	w, stop, err := newPair(ctx, t.Options)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	w.Ledger.CountShards(t.Options.Shards)
	calls, marks := &Calls{}, []Mark(nil)
	mark := func(name string) { marks = append(marks, Mark{Name: name, At: time.Now()}) }
	err = t.load(ctx, w, calls, func(ctx context.Context) error {
		const handedOver = 3 * time.Second // The second bridge has its shards.
		err := Sleep(ctx, handedOver)
		mark("steady")
		calls.Take()
		err = errors.Join(err, Sleep(ctx, t.Before))
		mark("trouble")
		if err != nil {
			return err
		}
		err = errors.Join(t.Happen(ctx, w), Sleep(ctx, t.After))
		mark("end") // From here on shards run out of messages.
		return err
	})
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	return t.judge(ctx, w, calls, marks, stop)
}

// load runs the churn while something happens.
func (t Trial) load(ctx context.Context, w *World, calls *Calls, happen func(context.Context) error) error {
	durable := delay.Memory
	if t.Durable {
		durable = delay.Replicas(w.Group.Replicas())
	}
	client, err := delay.NewClient(w.RDB, w.setup.Queue, delay.WithPrefix(w.setup.Prefix), delay.WithDurability(durable))
	if err != nil {
		return err
	}
	churn := Churn{Steady: Steady{
		Client: client, Topic: w.Topic, Rate: t.Rate, Lead: 200 * time.Millisecond, Spread: 2 * time.Second,
		BodySize: 32, Keys: 25 * t.Options.Shards, Calls: calls, Seed: rand.Uint64(), //nolint:gosec // any seed will do
	}}
	return While(ctx, func(ctx context.Context) error { return churn.Run(ctx, w.Ledger) }, happen)
}

// judge waits until all has arrived that is still there.
func (t Trial) judge(ctx context.Context, w *World, calls *Calls, marks []Mark, stop func() error) (*Outcome, error) {
	limit, cancel := context.WithTimeout(ctx, 3*time.Minute) // A claim that nobody settles takes one.
	defer cancel()
	var err error
	if t.Impatient {
		w.Ledger.Await(time.Minute, time.Second)
		if w.Ledger.Missing() > 0 { // The bridges, or the consumer, may be behind on a busy machine.
			_, err = w.Drained(limit)
			err = errors.Join(err, w.arrived(limit))
		}
	} else {
		_, err = w.Drained(limit)
		w.Ledger.Await(5*time.Second, 2*time.Second)
	}
	if err := errors.Join(err, stop()); err != nil {
		return nil, err
	}
	o := &Outcome{Report: w.Ledger.Report(), Answers: calls.Counts, Resumed: w.Ledger.Resumed}
	o.Report.OutOfOrder = 0 // A lost claim is an exception of the order.
	if o.Totals, err = w.Totals(ctx); err != nil {
		return nil, err
	}
	phases := w.Ledger.Phases(marks)
	o.Steady, o.Trouble = phases[0], phases[1]
	o.Longest = calls.Take()
	_, o.Log, err = w.stopAll()
	return o, err
}
