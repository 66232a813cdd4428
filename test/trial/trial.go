package trial

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

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
	// Impatient does not wait for claims that nobody settles any more: a failover
	// may take a settlement back.
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
	// Verb is that of the longest call, Longest how long it took.
	Verb    string
	Longest time.Duration
	// Resumed is the first arrival of each shard after an instant.
	Resumed func(since time.Time) []time.Time
	// Log is what the bridges have printed.
	Log string
}

// Run makes a world, and ends it.
func (t Trial) Run(ctx context.Context) (*Outcome, error) {
	w, err := NewWorld(ctx, t.Options)
	if w != nil {
		defer w.Close()
	}
	if err != nil {
		return nil, err
	}
	w.Ledger.CountShards(t.Options.Shards)
	second, err := w.SecondBridge()
	if err != nil {
		return nil, err
	}
	if err := second.Start(ctx); err != nil {
		return nil, err
	}
	stop := w.Consume(ctx)
	calls, marks := &Calls{}, []Mark(nil)
	mark := func(name string) { marks = append(marks, Mark{Name: name, At: time.Now()}) }
	err = t.load(ctx, w, calls, func() error {
		const handedOver = 3 * time.Second // The second bridge has its shards.
		err := Sleep(ctx, handedOver)
		mark("steady")
		_ = calls.Longest()
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
func (t Trial) load(ctx context.Context, w *World, calls *Calls, happen func() error) error {
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
	loading, finish := context.WithCancel(ctx)
	defer finish()
	var producing errgroup.Group
	producing.Go(func() error { return churn.Run(loading, w.Ledger) })
	err = happen()
	finish()
	return errors.Join(err, producing.Wait())
}

// judge waits until all has arrived that is still there.
func (t Trial) judge(ctx context.Context, w *World, calls *Calls, marks []Mark, stop func() error) (*Outcome, error) {
	limit, cancel := context.WithTimeout(ctx, 3*time.Minute) // A claim that nobody settles takes one.
	defer cancel()
	var err error
	if t.Impatient {
		w.Ledger.Await(time.Minute, time.Second)
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
	o.Verb, o.Longest = calls.Worst()
	for _, b := range w.Bridges() {
		if err := b.Stop(); err != nil {
			return nil, err
		}
		o.Log += b.Log()
	}
	return o, nil
}
