package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/delaybridge/delaybridge/test/flow"
)

// verdict prints a run's report and fails where a promise was broken.
func verdict(ctx context.Context, w *flow.World, r run, what string) error {
	report := w.Ledger.Report()
	totals, err := w.Totals(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("%-8s %-8s %s\n", what, r.broker, report)
	fmt.Printf("%-8s %-8s reclaimed %d  released %d  suspected duplicates %d  stale %d  dead %d  unbalanced %d\n", what, r.broker,
		totals.Counters["reclaimed"], totals.Counters["released"], totals.Counters["suspected_duplicates"],
		totals.Counters["stale_settles"], totals.Dead, totals.Unbalanced())
	if report.Duplicates > int(totals.Counters["suspected_duplicates"]) {
		return fmt.Errorf("%s: %d duplicates, of which only %d were suspected",
			what, report.Duplicates, totals.Counters["suspected_duplicates"])
	}
	if report.Wrong() > 0 || totals.Unbalanced() != 0 || totals.Dead > 0 || report.DuplicatesUnmarked > 0 {
		return fmt.Errorf("%s: broken promises: %d, %d duplicates without a higher attempt; the bridge said:\n%.2000s",
			what, report.Wrong(), report.DuplicatesUnmarked, w.Bridge.Log())
	}
	return nil
}

func (r run) world(ctx context.Context, redis ...string) (*flow.World, error) {
	return flow.NewWorld(ctx, flow.Options{
		Binary: r.binary, Broker: r.broker, Shards: r.shards, Redis: append([]string{"--appendonly", "yes"}, redis...),
	})
}

func (r run) load(w *flow.World, standard int, window time.Duration) flow.Load {
	return flow.Load{
		Client: w.Client, Topic: w.Topic, Count: cmp.Or(r.count, standard), Lead: 3 * time.Second, Window: window,
		BodySize: 256, Keys: 500, Seed: rand.Uint64(), //nolint:gosec // any seed will do
	}
}

// during runs the load and, beside it, what goes wrong meanwhile.
func (r run) during(
	ctx context.Context, what string, window time.Duration, redis []string, trouble func(*flow.World) error,
) error {
	w, err := r.world(ctx, redis...)
	if err != nil {
		return err
	}
	defer w.Close()
	stop := w.Consume(ctx)
	load := r.load(w, 20000, window)
	begin := time.Now()
	if err := load.Run(ctx, w.Ledger); err != nil {
		return err
	}
	fmt.Printf("%-8s %-8s scheduled, cancelled and rescheduled in %s\n", what, r.broker, time.Since(begin).Round(time.Millisecond))
	if err := trouble(w); err != nil {
		return err
	}
	w.Ledger.Await(window+2*time.Minute, 2*time.Second)
	if err := stop(); err != nil {
		return err
	}
	if err := w.Bridge.Stop(); err != nil {
		return err
	}
	return verdict(ctx, w, r, what)
}

func flowFigure(ctx context.Context, r run) error {
	return r.during(ctx, "flow", 20*time.Second, nil, func(*flow.World) error { return nil })
}

func killFigure(ctx context.Context, r run) error {
	return r.during(ctx, "kill", 20*time.Second, nil, func(w *flow.World) error {
		for range 5 {
			if err := pause(ctx, 4*time.Second); err != nil {
				return err
			}
			if err := w.Bridge.Kill(); err != nil {
				return err
			}
			if err := w.Bridge.Start(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

func outageFigure(ctx context.Context, r run) error {
	return r.during(ctx, "outage", 60*time.Second, []string{"--appendfsync", "always"}, func(w *flow.World) error {
		if err := pause(ctx, 10*time.Second); err != nil {
			return err
		}
		before := w.Bridge.ResidentBytes()
		if err := w.Broker.Server().Stop(); err != nil {
			return err
		}
		if err := pause(ctx, 15*time.Second); err != nil {
			return err
		}
		if err := w.Redis.Kill(); err != nil {
			return err
		}
		if err := w.Redis.Start(ctx); err != nil {
			return err
		}
		if err := pause(ctx, 15*time.Second); err != nil {
			return err
		}
		fmt.Printf("outage   %-8s resident before %d MiB, at the end of the outage %d MiB\n", r.broker, before>>20, w.Bridge.ResidentBytes()>>20)
		return w.Broker.Server().Start(ctx)
	})
}

func raceFigure(ctx context.Context, r run) error {
	for _, cancel := range []bool{true, false} {
		if err := r.race(ctx, cancel); err != nil {
			return err
		}
	}
	return nil
}

func (r run) race(ctx context.Context, cancel bool) error {
	w, err := r.world(ctx)
	if err != nil {
		return err
	}
	defer w.Close()
	stop := w.Consume(ctx)
	answers := &flow.Answers{}
	load := r.load(w, 20000, 20*time.Second)
	if err := flow.Race(ctx, load, cancel, w.Ledger, answers); err != nil {
		return err
	}
	w.Ledger.Await(2*time.Minute, 3*time.Second)
	if err := stop(); err != nil {
		return err
	}
	for _, answer := range slices.Sorted(maps.Keys(answers.Counts)) {
		fmt.Printf("race     %-8s %-60s %d\n", r.broker, answer, answers.Counts[answer])
	}
	return verdict(ctx, w, r, "race")
}

// pause waits, less long when ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
