package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/test/flow"
)

const (
	// resumeMiss is how long after a failover progress should have resumed.
	resumeMiss = 2 * time.Second
	// cutOff is how long a primary goes on without its replicas before it dies:
	// what it did then is lost.
	cutOff = time.Second
)

// sentinelFigure kills the primary of a group that Sentinel watches.
func sentinelFigure(ctx context.Context, r run) error { return r.failovers(ctx, "sentinel") }

// clusterFigure kills a primary of a Cluster, and migrates a slot.
func clusterFigure(ctx context.Context, r run) error {
	return errors.Join(r.failovers(ctx, "cluster"), r.migration(ctx))
}

// failovers kills a primary with each durability, at once and after it was cut
// off from its replicas.
func (r run) failovers(ctx context.Context, mode string) error {
	fmt.Printf("%-9s %-6s %-8s %-12s | %8s %7s %8s %5s %9s | %7s %22s | %8s %5s %10s | %5s %9s | %5s %5s\n", mode, "broker", "durable", "killed",
		"failover", "known", "progress", "shard", "whole gap", "steady", "longest call", "accepted", "lost", "taken back", "twice", "suspected", "early", "wrong")
	var problems []error
	for _, durable := range []bool{true, false} {
		for _, cut := range []time.Duration{0, cutOff} {
			if err := r.failover(ctx, mode, durable, cut); err != nil {
				problems = append(problems, err)
			}
		}
	}
	return errors.Join(problems...)
}

func (r run) trial(mode string, durable bool) flow.Trial {
	keys := ""
	if durable && mode == "sentinel" { // One of two: a Cluster's new primary would have none.
		keys = "durability: replicas"
	}
	return flow.Trial{
		Options: flow.Options{Binary: r.binary, Broker: r.broker, Shards: r.shards, Mode: mode, Copies: true, QueueKeys: keys},
		Durable: durable, Rate: r.rate, Before: r.pause / 2, After: r.pause / 2,
	}
}

// failover is one line.
func (r run) failover(ctx context.Context, mode string, durable bool, cut time.Duration) error {
	var f *flow.Failover
	trial := r.trial(mode, durable)
	trial.Happen = func(ctx context.Context, w *flow.World) (err error) {
		if f, err = w.KillPrimary(ctx, 0, cut); err != nil {
			return err
		}
		return errors.Join(pause(ctx, r.pause/2), f.Repair(ctx))
	}
	o, err := trial.Run(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", mode, err)
	}
	class, killed := "memory", "at once"
	if durable {
		class = "replicas"
	}
	if cut > 0 {
		killed = "cut off " + cut.String()
	}
	went := o.Resumed(f.Writable)
	if stuck := slices.IndexFunc(went, time.Time.IsZero); stuck >= 0 {
		return fmt.Errorf("%s: shard %d did not go on:\n%.2000s", mode, stuck, o.Log)
	}
	shard, resumed := slowest(went)
	_, gap := o.Trouble.Worst()
	report := o.Report
	fmt.Printf("%-9s %-6s %-8s %-12s | %8s %7s %8s %5d %9s | %7s %22s | %8d %5d %10d | %5d %9d | %5d %5d\n", mode, r.broker, class, killed,
		ms(f.Writable.Sub(f.Killed)), ms(f.Known.Sub(f.Killed)), fmt.Sprint("+", ms(resumed.Sub(f.Writable))), shard, ms(gap), ms(o.Steady.Normal()), fmt.Sprint(o.Verb, " ", ms(o.Longest)),
		report.Scheduled, report.Lost, report.CancelledArrived+report.WrongDue, report.Duplicates,
		o.Totals.Counters["suspected_duplicates"], report.Early, wrong(o, durable))
	printAnswers(mode, o)
	if late := resumed.Sub(f.Writable); late > resumeMiss {
		fmt.Printf("%-9s MISS: progress resumed %s after the failover, more than %s\n", mode, ms(late), resumeMiss)
	}
	err = broken(fmt.Sprintf("%s, %s, killed %s", mode, class, killed), o, durable)
	if n := o.Report.DuplicatesUnmarked; n > 0 && trial.Options.QueueKeys != "" {
		err = errors.Join(err, fmt.Errorf("%s: %d copies without a higher attempt", mode, n))
	}
	return err
}

// slowest is the shard that resumed last.
func slowest(resumed []time.Time) (shard int, at time.Time) {
	at = slices.MaxFunc(resumed, time.Time.Compare)
	return slices.IndexFunc(resumed, at.Equal), at
}

func printAnswers(mode string, o *flow.Outcome) {
	var answers []string
	for text, count := range o.Answers {
		answers = append(answers, fmt.Sprintf("%s %d", strings.ReplaceAll(text, "delay: ", ""), count))
	}
	slices.Sort(answers)
	fmt.Printf("%-9s   calls: %s\n", mode, strings.Join(answers, ", "))
	fmt.Printf("%-9s   bridges: reclaimed %d  released %d  stale %d; without a higher attempt %d; first copies late by %s at most\n", mode,
		o.Totals.Counters["reclaimed"], o.Totals.Counters["released"], o.Totals.Counters["stale_settles"], o.Report.DuplicatesUnmarked, ms(o.Report.Max))
}

// wrong are the answers that were not true. With memory durability a failover
// may take back what was done: those are counted apart.
func wrong(o *flow.Outcome, durable bool) int {
	n := o.Report.Untruthful + o.Report.Unknown
	if durable {
		n += o.Report.CancelledArrived + o.Report.WrongDue
	}
	return n
}

// broken says which promises were.
func broken(what string, o *flow.Outcome, durable bool) error {
	var problems []string
	add := func(n int, name string) {
		if n != 0 {
			problems = append(problems, fmt.Sprintf("%d %s", n, name))
		}
	}
	if durable {
		add(o.Report.Lost, "lost")
	}
	add(o.Report.Early, "early")
	add(wrong(o, durable), "wrong answers")
	add(int(o.Totals.Unbalanced()), "unbalanced")
	add(int(o.Totals.Dead), "dead")
	if len(problems) == 0 {
		return nil
	}
	list := o.Report.Problems
	return fmt.Errorf("%s: %s\n  %s", what, strings.Join(problems, ", "), strings.Join(list[:min(10, len(list))], "\n  "))
}
