package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/test/flow"
)

// lease is how long a shard belongs to an instance that is silent.
const lease = 5 * time.Second

// crowd is some bridges under a steady load, and what happened to them.
type crowd struct {
	run     run
	w       *flow.World
	bridges []*flow.Bridge
	marks   []flow.Mark
	// before holds the counters at each mark.
	before []flow.Totals
	// faulty are the marks after which duplicates and another order are allowed.
	faulty map[string]bool
}

// instancesFigure measures how long the worst shard stands still when bridges
// come, go, die and hang.
func instancesFigure(ctx context.Context, r run) error {
	w, err := r.world(ctx)
	if err != nil {
		return err
	}
	defer w.Close()
	w.Ledger.CountShards(r.shards)
	bridges, err := startMore(ctx, w, 3)
	if err != nil {
		return err
	}
	if err := pause(ctx, lease+time.Second); err != nil { // All shards have their holders.
		return err
	}
	stop := w.Consume(ctx)
	c := &crowd{run: r, w: w, bridges: bridges, faulty: map[string]bool{}}
	loading, finish := context.WithCancel(ctx)
	defer finish()
	load := flow.Steady{
		Client: w.Client, Topic: w.Topic, Rate: r.rate, Lead: time.Second, Spread: 2 * time.Second, BodySize: 32, Keys: 50 * r.shards,
		Seed: rand.Uint64(), //nolint:gosec // any seed will do
	}
	var group errgroup.Group
	group.Go(func() error { return load.Run(loading, w.Ledger) })
	err = errors.Join(pause(ctx, 5*time.Second), c.trouble(ctx))
	finish()
	if err := errors.Join(err, group.Wait()); err != nil {
		return err
	}
	w.Ledger.Await(2*time.Minute, 2*time.Second)
	if err := stop(); err != nil {
		return err
	}
	return c.report(ctx)
}

// during marks the beginning of something, lets it happen, and waits.
func (c *crowd) during(ctx context.Context, name string, faulty bool, happen func() error) error {
	totals, err := c.w.Totals(ctx)
	if err != nil {
		return err
	}
	c.before = append(c.before, totals)
	c.marks = append(c.marks, flow.Mark{Name: name, At: time.Now()})
	c.faulty[name] = faulty
	if err := happen(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return pause(ctx, c.run.pause)
}

func (c *crowd) trouble(ctx context.Context) error {
	victim, hung := c.bridges[0], c.bridges[1] // The first one has had the most shards if they are not spread.
	steps := []struct {
		name   string
		faulty bool
		happen func() error
	}{
		{"steady", false, func() error { return nil }},
		{"kill -9 one", true, victim.Kill},
		{"start it again", false, func() error { return victim.Start(ctx) }},
		{fmt.Sprintf("pause one for %s", lease+3*time.Second), true, func() error {
			return errors.Join(hung.Pause(), pause(ctx, lease+3*time.Second), hung.Resume())
		}},
		{"add a fourth", false, func() (err error) { c.bridges, err = c.add(ctx); return err }},
	}
	for _, s := range steps {
		if err := c.during(ctx, s.name, s.faulty, s.happen); err != nil {
			return err
		}
	}
	for i, b := range c.bridges {
		err := c.during(ctx, fmt.Sprintf("roll %d", i+1), false, func() error {
			if err := b.Stop(); err != nil {
				return err
			}
			return b.Start(ctx)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *crowd) add(ctx context.Context) ([]*flow.Bridge, error) {
	b, err := c.w.SecondBridge()
	if err != nil {
		return c.bridges, err
	}
	return append(c.bridges, b), b.Start(ctx)
}

func (c *crowd) report(ctx context.Context) error {
	totals, err := c.w.Totals(ctx)
	if err != nil {
		return err
	}
	report, phases := c.w.Ledger.Report(), c.w.Ledger.Phases(c.marks)
	c.before = append(c.before, totals)
	normal := phases[0].Normal()
	fmt.Printf("%-9s %-8s %-18s %9s | %11s %10s %6s | %12s | %6s %9s %12s\n", "instances", "broker", "after", "arrived",
		"no progress", "whole gap", "shard", "max lateness", "twice", "reclaimed", "out of order")
	var problems []error
	for i, p := range phases {
		shard, gap := p.Worst()
		reclaimed := c.before[i+1].Counters["reclaimed"] - c.before[i].Counters["reclaimed"]
		fmt.Printf("%-9s %-8s %-18s %9d | %11s %10s %6d | %12s | %6d %9d %12d\n", "instances", c.run.broker, p.Name, p.Arrived,
			ms(max(0, gap-normal)), ms(gap), shard, ms(p.MaxLateness), p.Duplicates, reclaimed, p.OutOfOrder)
		if !c.faulty[p.Name] && p.Duplicates+p.OutOfOrder > 0 {
			problems = append(problems, fmt.Errorf("%s: %d duplicates and %d out of order without a fault", p.Name, p.Duplicates, p.OutOfOrder))
		}
	}
	if report.Duplicates > int(totals.Counters["reclaimed"]) {
		problems = append(problems, fmt.Errorf("%d duplicates, but only %d reclaimed", report.Duplicates, totals.Counters["reclaimed"]))
	}
	report.OutOfOrder = 0 // Judged by phase.
	return errors.Join(append(problems, c.verdict(report, totals))...)
}

func (c *crowd) verdict(report flow.Report, totals flow.Totals) error {
	fmt.Printf("%-9s %-8s %s\n", "instances", c.run.broker, report)
	fmt.Printf("%-9s %-8s reclaimed %d  released %d  suspected duplicates %d  stale %d  dead %d  unbalanced %d\n", "instances", c.run.broker,
		totals.Counters["reclaimed"], totals.Counters["released"], totals.Counters["suspected_duplicates"],
		totals.Counters["stale_settles"], totals.Dead, totals.Unbalanced())
	if report.Wrong() > 0 || totals.Unbalanced() != 0 || totals.Dead > 0 || report.DuplicatesUnmarked > 0 {
		return fmt.Errorf("broken promises: %d, %d duplicates without a higher attempt", report.Wrong(), report.DuplicatesUnmarked)
	}
	return nil
}

func ms(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
