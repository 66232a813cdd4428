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

// scaleCase is a number of instances and shards, with its results.
type scaleCase struct {
	instances, shards int
	rates             []float64
}

// scaleFigure drains the same number of messages with more and more shards, and
// with more and more instances, all of them in turn, so that what the machine
// does meanwhile touches all alike.
func scaleFigure(ctx context.Context, r run) error {
	count := cmp.Or(r.count, 400000)
	cases := []*scaleCase{
		{instances: 1, shards: 1},
		{instances: 1, shards: 2},
		{instances: 1, shards: 4},
		{instances: 1, shards: 8},
		{instances: 2, shards: 8},
		{instances: 3, shards: 8},
	}
	for range r.repeat {
		for _, c := range cases {
			rate, err := r.scale(ctx, c, count)
			if err != nil {
				return fmt.Errorf("%d instances, %d shards: %w", c.instances, c.shards, err)
			}
			c.rates = append(c.rates, rate)
		}
	}
	fmt.Printf("%-6s %-8s %9s %6s %8s | %9s %6s | %s\n", "scale", "broker", "instances", "shards", "messages", "median/s", "times", "each")
	base := median(cases[0].rates)
	for _, c := range cases {
		var each []string
		for _, rate := range c.rates {
			each = append(each, fmt.Sprintf("%7.0f", rate))
		}
		fmt.Printf("%-6s %-8s %9d %6d %8d | %9.0f %6.2f | %s\n", "scale", r.broker, c.instances, c.shards, count,
			median(c.rates), median(c.rates)/base, strings.Join(each, " "))
	}
	return nil
}

func (r run) scale(ctx context.Context, c *scaleCase, count int) (float64, error) {
	w, err := r.world(ctx, trial.Options{Shards: c.shards})
	if err != nil {
		return 0, err
	}
	defer w.Close()
	if err := startMore(ctx, w, c.instances); err != nil {
		return 0, err
	}
	if err := trial.Sleep(ctx, lease); err != nil {
		return 0, err
	}
	due, err := fillAhead(ctx, w, filling{count: count}, 20_000)
	if err := errors.Join(err, trial.Sleep(ctx, time.Until(due))); err != nil {
		return 0, err
	}
	end, err := w.Drained(ctx)
	if err != nil {
		return 0, err
	}
	stored, err := w.Broker.Stored(ctx, w.Topic)
	if err == nil && stored != int64(count) {
		err = fmt.Errorf("%d messages at the broker, want %d", stored, count)
	}
	return rate(count, end.Sub(due)), err
}

// lease is how long a shard belongs to an instance that is silent.
const lease = 5 * time.Second

// startMore starts bridges until there are count.
func startMore(ctx context.Context, w *trial.World, count int) error {
	for len(w.Bridges()) < count {
		b, err := w.SecondBridge(ctx)
		if err != nil {
			return err
		}
		if err := b.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}
