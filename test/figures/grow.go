package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/test/flow"
)

// growth is a queue whose shards change while producers work.
type growth struct {
	run

	w     *flow.World
	calls *flow.Calls
	// operations are messages to be cancelled or rescheduled soon.
	operations chan delay.Ref
	sleepers   []*sleeper // producers that know an old layout
}

// growFigure changes the number of shards from 4 to 64 to 16 while several
// producers schedule, cancel and reschedule; some sleep so long that the layout
// they know is an old one.
func growFigure(ctx context.Context, r run) error {
	if err := canSetShards(ctx, r.binary); err != nil {
		return err
	}
	w, err := r.world(ctx)
	if err != nil {
		return err
	}
	defer w.Close()
	stop := w.Consume(ctx)
	g := &growth{run: r, w: w, calls: &flow.Calls{}, operations: make(chan delay.Ref, 1000)}
	for n := range 3 {
		s, err := g.newSleeper(ctx, n)
		if err != nil {
			return err
		}
		g.sleepers = append(g.sleepers, s)
	}
	if err := g.underLoad(ctx, func() error { return g.change(ctx) }); err != nil {
		return err
	}
	w.Ledger.Await(3*time.Minute, 3*time.Second)
	if err := stop(); err != nil {
		return err
	}
	return g.report(ctx)
}

// canSetShards says so where the command is missing.
func canSetShards(ctx context.Context, binary string) error {
	if output, err := exec.CommandContext(ctx, binary, "shards", "set", "--help").CombinedOutput(); err != nil {
		return fmt.Errorf("this bridge has no command `bridge shards set`: %w: %.200s", err, output)
	}
	return nil
}

func (g *growth) client() (*delay.Client, error) {
	return delay.NewClient(g.w.RDB, "orders", delay.WithPrefix("flow"))
}

// underLoad runs producers and those who cancel and reschedule beside it.
func (g *growth) underLoad(ctx context.Context, work func() error) error {
	const producers = 3
	loading, finish := context.WithCancel(ctx)
	defer finish()
	var producing, changing errgroup.Group
	for n := range producers {
		client, err := g.client()
		if err != nil {
			return err
		}
		load := flow.Steady{
			Client: client, Topic: g.w.Topic, Rate: max(1, g.rate/producers), Lead: time.Second, Spread: 15 * time.Second,
			BodySize: 64, Keys: 500, IDs: fmt.Sprintf("p%d-", n), Calls: g.calls, Accepted: g.offer,
			Seed: rand.Uint64(), //nolint:gosec // any seed will do
		}
		producing.Go(func() error { return load.Run(loading, g.w.Ledger) })
		changer, err := g.client()
		if err != nil {
			return err
		}
		changing.Go(func() error { return g.operate(ctx, changer) })
	}
	err := work()
	finish()
	err = errors.Join(err, producing.Wait())
	close(g.operations)
	return errors.Join(err, changing.Wait())
}

// offer gives one message in ten to be operated on, as long as there is room.
func (g *growth) offer(refs []delay.Ref) {
	for i := 0; i < len(refs); i += 10 {
		select {
		case g.operations <- refs[i]:
		default:
		}
	}
}

// operate cancels every other message, and reschedules the others.
func (g *growth) operate(ctx context.Context, client *delay.Client) error {
	var problems []error
	for n := 0; ; n++ {
		ref, more := <-g.operations
		if !more {
			return errors.Join(problems...)
		}
		if err := g.alter(ctx, client, ref, n%2 == 0, 2*time.Second); err != nil && len(problems) < 10 {
			problems = append(problems, err)
		}
	}
}

// alter cancels, or reschedules to so much later, and records the answer.
func (g *growth) alter(ctx context.Context, client *delay.Client, ref delay.Ref, cancel bool, in time.Duration) error {
	if cancel {
		err := g.calls.Time("cancel", func() error { return client.Cancel(ctx, ref) })
		if errors.Is(err, delay.ErrNotFound) {
			g.w.Ledger.Absent(ref.ID)
		}
		return g.w.Ledger.CancelAnswered(ref.ID, err)
	}
	due := time.Now().Add(in)
	err := g.calls.Time("reschedule", func() error { return client.Reschedule(ctx, ref, delay.At(due)) })
	if errors.Is(err, delay.ErrNotFound) {
		g.w.Ledger.Absent(ref.ID)
	}
	return g.w.Ledger.RescheduleAnswered(ref.ID, due, err)
}

// change goes from 4 to 64 to 16 shards.
func (g *growth) change(ctx context.Context) error {
	if err := g.say(ctx, fmt.Sprintf("%d shards", g.shards), 0); err != nil {
		return err
	}
	for n, shards := range []int{64, 16} {
		begin := time.Now()
		command := exec.CommandContext(ctx, g.binary, "shards", "set", strconv.Itoa(shards), "--config", g.w.Bridge.Config, "--queue", "orders")
		if output, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("set %d shards: %w: %.500s", shards, err, output)
		}
		took := time.Since(begin)
		if err := g.sleepers[n].wake(ctx, g); err != nil {
			return err
		}
		if err := g.say(ctx, fmt.Sprintf("to %d shards", shards), took); err != nil {
			return err
		}
	}
	// This one still knows the first layout, two changes later.
	if err := g.sleepers[2].wake(ctx, g); err != nil {
		return err
	}
	for _, s := range g.sleepers {
		if err := s.finish(ctx, g); err != nil {
			return err
		}
	}
	return g.say(ctx, "sleepers awake", 0)
}

// say waits under load, and prints the longest calls since the last time.
func (g *growth) say(ctx context.Context, what string, took time.Duration) error {
	err := pause(ctx, g.pause)
	fmt.Printf("%-6s %-8s %-15s command %8s | longest calls: %s\n", "grow", g.broker, what, ms(took), g.calls.Longest())
	return err
}

func (g *growth) report(ctx context.Context) error {
	report := g.w.Ledger.Report()
	totals, err := g.w.Totals(ctx)
	if err != nil {
		return err
	}
	layout, err := g.w.RDB.HGetAll(ctx, "flow:orders:layout").Result()
	if err != nil {
		return err
	}
	if layout["shards"] != "16" {
		return fmt.Errorf("grow: the queue has %s shards, want 16", layout["shards"])
	}
	fmt.Printf("%-6s %-8s %s\n", "grow", g.broker, report)
	fmt.Printf("%-6s %-8s reclaimed %d  suspected duplicates %d  stale %d  dead %d  unbalanced %d  layout fields %q\n", "grow", g.broker,
		totals.Counters["reclaimed"], totals.Counters["suspected_duplicates"], totals.Counters["stale_settles"], totals.Dead,
		totals.Unbalanced(), slices.Sorted(maps.Keys(layout)))
	for _, answer := range slices.Sorted(maps.Keys(g.calls.Counts)) {
		fmt.Printf("%-6s %-8s %-60s %d\n", "grow", g.broker, answer, g.calls.Counts[answer])
	}
	report.OutOfOrder = 0 // A change of the shards is an exception of the order.
	unbalanced := totals.Unbalanced() != 0
	if report.Wrong() > 0 || unbalanced || totals.Dead > 0 || report.DuplicatesUnmarked > 0 ||
		report.Duplicates > int(totals.Counters["suspected_duplicates"]) {
		return fmt.Errorf("grow: broken promises: %d, %d duplicates without a higher attempt; the bridge said:\n%.2000s",
			report.Wrong(), report.DuplicatesUnmarked, g.w.Bridge.Log())
	}
	return nil
}
