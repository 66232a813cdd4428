package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/test/trial"
)

// durabilityCase is what a queue asks of Redis, with its results.
type durabilityCase struct {
	name, asked, fsync string

	drained, relayed []float64 // a second
	p50, p99         []float64 // seconds of lateness
}

// errNoFsync: a bridge would publish nothing.
var errNoFsync = errors.New("this Redis cannot confirm what is on its disk (WAITAOF, from 7.2 on): DELAYBRIDGE_TEST_REDIS_SERVER names another")

// durabilityFigure measures what each durability of a queue costs: lateness at
// 1,000 a second, the drain, and the relay. All cases have a replica and a file, so
// that they differ in nothing but what is waited for.
func durabilityFigure(ctx context.Context, r run) error {
	cases := []*durabilityCase{
		{name: "memory", fsync: "everysec"},
		{name: "replicas", asked: "durability: replicas", fsync: "everysec"},
		{name: "fsync, everysec", asked: "durability: fsync", fsync: "everysec"},
		{name: "memory, always", fsync: "always"},
		{name: "fsync, always", asked: "durability: fsync", fsync: "always"},
	}
	for range r.repeat {
		for _, c := range cases {
			if err := r.durability(ctx, c); errors.Is(err, errNoFsync) {
				fmt.Printf("durability %-8s %-16s left out: %v\n", r.broker, c.name, err)
			} else if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	fmt.Printf("%-10s %-8s %-16s | %12s %12s | %9s | %9s\n", "durability", "broker", "queue", "late p50", "p99", "drain/s", "relay/s")
	for _, c := range cases {
		if len(c.p50) == 0 {
			continue
		}
		fmt.Printf("%-10s %-8s %-16s | %9.1f ms %9.1f ms | %9.0f | %9.0f\n", "durability", r.broker, c.name,
			1000*median(c.p50), 1000*median(c.p99), median(c.drained), median(c.relayed))
	}
	return nil
}

func (r run) durability(ctx context.Context, c *durabilityCase) error {
	w, err := r.world(ctx, trial.Options{
		Redis: []string{"--appendonly", "yes", "--appendfsync", c.fsync}, Replica: true, QueueKeys: c.asked, Database: "postgres", Outbox: "horizon: 1h",
	})
	if err != nil {
		return err
	}
	defer w.Close()
	commands, err := w.RDB.Command(ctx).Result()
	if err != nil {
		return err
	}
	if strings.HasSuffix(c.asked, "fsync") && commands["waitaof"] == nil {
		return errNoFsync
	}
	stop := w.Consume(ctx)
	load := trial.Load{
		Client: w.Client, Topic: w.Topic, Count: 20 * r.rate, Lead: 3 * time.Second, Window: 20 * time.Second, BodySize: 256, Keys: 500, Seed: r.seed,
	}
	if err := load.Run(ctx, w.Ledger); err != nil {
		return err
	}
	w.Ledger.Await(2*time.Minute, 2*time.Second)
	if err := stop(); err != nil {
		return err
	}
	report := w.Ledger.Report()
	if report.Wrong() > 0 || report.Duplicates > 0 {
		return fmt.Errorf("broken promises: %s", report)
	}
	drained, err := drainBacklog(ctx, w, cmp.Or(r.count, 100_000))
	if err != nil {
		return err
	}
	totals, err := w.Totals(ctx)
	if err != nil {
		return err
	}
	relayed, err := relayAll(ctx, w, cmp.Or(r.count, 100_000)/5)
	if err != nil {
		return err
	}
	c.p50, c.p99 = append(c.p50, report.P50.Seconds()), append(c.p99, report.P99.Seconds())
	c.drained, c.relayed = append(c.drained, drained), append(c.relayed, relayed)
	fmt.Printf("durability %-8s %-16s late p50 %s p99 %s  drain %.0f/s  relay %.0f/s  not confirmed in time %d\n",
		r.broker, c.name, ms(report.P50), ms(report.P99), drained, relayed, totals.Counters["released"])
	return nil
}

// drainBacklog starts the bridge on so many messages that are due already, and
// returns how many a second it publishes.
func drainBacklog(ctx context.Context, w *trial.World, count int) (float64, error) {
	if err := w.Bridge.Stop(); err != nil {
		return 0, err
	}
	if err := fill(ctx, w, filling{count: count, due: time.Now()}); err != nil {
		return 0, err
	}
	if err := w.Bridge.Start(ctx); err != nil {
		return 0, err
	}
	begin := time.Now()
	end, err := w.Drained(ctx)
	return rate(count, end.Sub(begin)), err
}

// relayAll commits so many rows at once, due later, and returns how many a second
// come to Redis.
func relayAll(ctx context.Context, w *trial.World, count int) (float64, error) {
	begin := time.Now()
	if err := insert(ctx, w, rows{ids: "row", topic: w.Topic, count: count, first: begin.Add(horizonTime / 2), over: time.Second}); err != nil {
		return 0, err
	}
	committed := time.Now()
	for time.Since(committed) < 5*time.Minute {
		pending, err := w.Database.Pending(ctx)
		if err != nil {
			return 0, err
		}
		if pending == 0 {
			return rate(count, time.Since(committed)), nil
		}
		if err := trial.Sleep(ctx, 20*time.Millisecond); err != nil {
			return 0, err
		}
	}
	return 0, errors.New("rows are left")
}
