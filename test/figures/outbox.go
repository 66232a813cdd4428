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

// transactionLimit is how long a producer's transaction may take while Redis is
// away and the database is not: only the machine delays it.
const transactionLimit = 5 * time.Second

// outboxSpread is the longest delay of a message: longer than the horizon.
const outboxSpread = 12 * time.Second

// outboxFigure runs producers with transactions on each database, while bridges,
// Redis and the database die.
func outboxFigure(ctx context.Context, r run) error {
	var problems []error
	fmt.Printf("seed %d\n", r.seed)
	for database := range strings.SplitSeq(r.databases, ",") {
		if err := r.outbox(ctx, database); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", database, err))
		}
	}
	return errors.Join(problems...)
}

// outbox is one line.
func (r run) outbox(ctx context.Context, database string) error {
	o, err := flow.OutboxTrial{
		Options: flow.Options{
			Binary: r.binary, Broker: r.broker, Shards: r.shards, Copies: true, Database: database,
			// What Redis has answered, it has: a kill takes nothing back.
			Redis: []string{"--appendonly", "yes", "--appendfsync", "always"},
		},
		Rate: r.rate, Spread: outboxSpread, Seed: r.seed,
		Happen: r.outboxTrouble,
	}.Run(ctx)
	if err != nil {
		return err
	}
	report, tally := o.Report, o.Tally
	fmt.Printf("outbox  %-8s | %9s %9s %9s %9s | %4s %5s %7s %5s %9s %6s | %5s %7s %9s\n", "database", "committed", "rolled b.", "overtaken", "arrived",
		"lost", "early", "wrong d.", "twice", "suspected", "wrong", "kills", "pending", "drained")
	fmt.Printf("outbox  %-8s | %9d %9d %9d %9d | %4d %5d %8d %5d %9d %6d | %5d %7d %9s\n", database, tally.Committed, tally.RolledBack, tally.Overtaken, report.Arrived,
		report.Lost, report.Early, report.WrongDue, report.Duplicates, o.Totals.Counters["suspected_duplicates"], len(report.Problems), o.Kills, tally.Pending+tally.Stored, ms(o.Drained))
	fmt.Printf("outbox  %-8s   rows: %s\n", database, counts(tally.Operations))
	fmt.Printf("outbox  %-8s   calls: %s\n", database, counts(o.Answers))
	fmt.Printf("outbox  %-8s   longest: %s\n", database, phases(o.Phases))
	fmt.Printf("outbox  %-8s   reclaimed %d  released %d  stale %d  settlements left %d  late by %s at most, p99 %s\n", database, o.Totals.Counters["reclaimed"],
		o.Totals.Counters["released"], o.Totals.Counters["stale_settles"], o.Ledger, ms(report.Max), ms(report.P99))
	return outboxVerdict(o)
}

// outboxTrouble is what goes wrong. Only in the first phase nothing does.
func (r run) outboxTrouble(ctx context.Context, t *flow.OutboxRun) error {
	t.Phase("steady")
	if err := pause(ctx, r.pause); err != nil {
		return err
	}
	kills := func(ctx context.Context) error { return t.KillBridges(ctx, r.pause) }
	return flow.While(ctx, kills, func(ctx context.Context) error {
		for _, step := range []struct {
			name   string
			happen func() error
		}{
			{"kills", func() error { return pause(ctx, 2*r.pause) }},
			{hangs, func() error { return t.HangRedis(ctx, r.window) }},
			{"after", func() error { return pause(ctx, r.pause) }},
			{dead, func() error { return t.KillRedis(ctx, r.window) }},
			{"after", func() error { return pause(ctx, r.pause) }},
			{"database killed", func() error { return t.KillDatabase(ctx, 2*time.Second) }},
			{"after", func() error { return pause(ctx, r.pause) }},
		} {
			t.Phase(step.name)
			if err := step.happen(); err != nil {
				return fmt.Errorf("%s: %w", step.name, err)
			}
		}
		return nil
	})
}

// The phases without Redis.
const (
	hangs = "redis hangs"
	dead  = "redis dead"
)

func counts(of map[string]int) string {
	var parts []string
	for text, n := range of {
		parts = append(parts, fmt.Sprintf("%s %d", strings.ReplaceAll(text, "delay: ", ""), n))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

func phases(list []flow.OutboxPhase) string {
	var parts []string
	for _, p := range list {
		parts = append(parts, fmt.Sprintf("%s %s (push %s)", p.Name, ms(p.Longest["transaction"]), ms(p.Longest["push"])))
	}
	return strings.Join(parts, ", ")
}

// outboxVerdict says which promises were broken.
func outboxVerdict(o *flow.OutboxOutcome) error {
	var problems []string
	add := func(n int, name string) {
		if n != 0 {
			problems = append(problems, fmt.Sprintf("%d %s", n, name))
		}
	}
	report := o.Report
	add(report.Lost, "lost")
	add(report.Early, "early")
	add(report.WrongDue, "with a wrong due time")
	add(report.CancelledArrived, "cancelled but arrived")
	add(report.Untruthful, "rolled back but arrived")
	add(report.Unknown, "unknown")
	add(report.DuplicatesUnmarked, "copies without a higher attempt")
	add(max(0, report.Duplicates-int(o.Totals.Counters["suspected_duplicates"])), "duplicates that nobody suspected")
	add(len(report.Problems), "problems")
	add(o.Tally.Pending, "rows pending")
	add(o.Tally.Stored, "rows stored")
	add(int(o.Totals.Unbalanced()), "unbalanced")
	add(int(o.Totals.Dead), "dead")
	add(int(o.Ledger), "settlements left in Redis")
	for _, p := range o.Phases {
		if took := p.Longest["transaction"]; (p.Name == hangs || p.Name == dead) && took > transactionLimit {
			problems = append(problems, fmt.Sprintf("a transaction of %s while %s", ms(took), p.Name))
		}
	}
	if len(problems) == 0 {
		return nil
	}
	list := report.Problems
	return fmt.Errorf("%s\n  %s", strings.Join(problems, ", "), strings.Join(list[:min(20, len(list))], "\n  "))
}
