package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/test/flow"
)

// fill schedules count messages that are due at one instant.
func fill(ctx context.Context, w *flow.World, count int, due time.Time) error {
	return fillTagged(ctx, w, count, func(int) delay.When { return delay.At(due) }, "d", nil)
}

// fillTagged schedules count messages; when says when the n-th is due.
func fillTagged(ctx context.Context, w *flow.World, count int, when func(n int) delay.When, prefix string, tags []string) error {
	body := make([]byte, 256)
	var group errgroup.Group
	group.SetLimit(8)
	const batch = 500
	for start := 0; start < count; start += batch {
		group.Go(func() error {
			requests := make([]delay.Request, min(batch, count-start))
			for i := range requests {
				requests[i] = delay.Request{
					Message: delay.Message{ID: fmt.Sprintf("%s-%024d", prefix, start+i), Topic: w.Topic, Body: body, Tags: tags}, When: when(start + i),
				}
			}
			results, err := w.Client.ScheduleBatch(ctx, requests)
			for _, result := range results {
				err = errors.Join(err, result.Err)
			}
			return err
		})
	}
	return group.Wait()
}

// drainFigure compares the drain of what is due with the client library alone,
// which publishes the same number of equal bodies to the same broker, before
// and after.
func drainFigure(ctx context.Context, r run) error {
	count := cmp.Or(r.count, 200000)
	w, err := r.world(ctx)
	if err != nil {
		return err
	}
	defer w.Close()
	raw := func(n int) (float64, error) {
		topic := fmt.Sprintf("%s-raw-%d", w.Topic, n)
		if err := w.Broker.MakeTopic(ctx, topic); err != nil {
			return 0, err
		}
		begin := time.Now()
		err := w.Broker.PublishRaw(ctx, topic, make([]byte, 256), count)
		return rate(count, time.Since(begin)), err
	}
	before, err := raw(1)
	if err != nil {
		return err
	}
	drain, err := drainDue(ctx, w, count)
	if err != nil {
		return err
	}
	stored, err := w.Broker.Stored(ctx, w.Topic)
	if err != nil {
		return err
	}
	after, err := raw(2)
	if err != nil {
		return err
	}
	fmt.Printf("drain    %-8s %d messages, %d shards: %.0f/s; client library alone %.0f/s and %.0f/s; ratio %.2f; "+
		"CPU a message: bridge %.1f µs, Redis %.1f µs; stored at the broker %d\n",
		r.broker, count, r.shards, drain.rate, before, after, drain.rate/max(before, after),
		each(drain.bridge, count), each(drain.redis, count), stored)
	if stored != int64(count) {
		return fmt.Errorf("drain: %d messages at the broker, want %d", stored, count)
	}
	return nil
}

// drained is how many messages a second were published, and what that has cost.
type drained struct {
	rate          float64
	bridge, redis time.Duration // processor time
}

// each is the part of one message, in microseconds.
func each(all time.Duration, count int) float64 { return float64(all.Microseconds()) / float64(count) }

// drainDue schedules count messages for one instant and drains them from then on.
func drainDue(ctx context.Context, w *flow.World, count int) (d drained, err error) {
	due := time.Now().Add(time.Duration(count/20000+3) * time.Second)
	if err := fill(ctx, w, count, due); err != nil {
		return d, err
	}
	if time.Now().After(due) {
		return d, errors.New("drain: the messages were due before all were scheduled")
	}
	if err := pause(ctx, time.Until(due)); err != nil {
		return d, err
	}
	before, err := look(ctx, w, w.Bridges())
	if err != nil {
		return d, err
	}
	end, err := w.Drained(ctx)
	if err != nil {
		return d, err
	}
	after, err := look(ctx, w, w.Bridges())
	for i, cpu := range after.bridges {
		d.bridge += cpu - before.bridges[i]
	}
	d.rate, d.redis = rate(count, end.Sub(due)), after.redis-before.redis
	return d, err
}

func rate(count int, d time.Duration) float64 { return float64(count) / d.Seconds() }

// backlogFigure measures memory while a million messages are due and the
// broker is down, and while they drain.
func backlogFigure(ctx context.Context, r run) error {
	count := cmp.Or(r.count, 1000000)
	w, err := r.world(ctx)
	if err != nil {
		return err
	}
	defer w.Close()
	if err := w.Broker.Server().Stop(); err != nil {
		return err
	}
	idle := w.Bridge.ResidentBytes()
	if err := fill(ctx, w, count, time.Now()); err != nil {
		return err
	}
	var down []int64
	for range 30 {
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
		down = append(down, w.Bridge.ResidentBytes()>>20)
	}
	if err := w.Broker.Server().Start(ctx); err != nil {
		return err
	}
	begin, draining := time.Now(), int64(0)
	stop := make(chan struct{})
	sampled := make(chan struct{})
	go func() {
		defer close(sampled)
		for {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
				draining = max(draining, w.Bridge.ResidentBytes()>>20)
			}
		}
	}()
	end, err := w.Drained(ctx)
	close(stop)
	<-sampled
	if err != nil {
		return err
	}
	totals, err := w.Totals(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("backlog  %-8s %d due, broker down for 30 s: resident %d MiB idle, %d to %d MiB down, at most %d MiB draining; drained in %s after its return; dead %d\n",
		r.broker, count, idle>>20, slices.Min(down), slices.Max(down), draining, end.Sub(begin).Round(time.Millisecond), totals.Dead)
	if totals.Dead > 0 || totals.Counters["published"] != int64(count) {
		return fmt.Errorf("backlog: published %d of %d, dead %d", totals.Counters["published"], count, totals.Dead)
	}
	return nil
}

// memoryFigure measures what a waiting message of 26 bytes id and 256 bytes
// body takes in Redis.
func memoryFigure(ctx context.Context, r run) error {
	count := cmp.Or(r.count, 1000000)
	w, err := r.world(ctx)
	if err != nil {
		return err
	}
	defer w.Close()
	before, err := usedMemory(ctx, w)
	if err != nil {
		return err
	}
	if err := fill(ctx, w, count, time.Now().Add(24*time.Hour)); err != nil {
		return err
	}
	after, err := usedMemory(ctx, w)
	if err != nil {
		return err
	}
	each := float64(after-before) / float64(count)
	fmt.Printf("memory   %-8s %d waiting: %d MiB, %.0f bytes each, %.0f beyond id and body\n",
		r.broker, count, (after-before)>>20, each, each-26-256)
	return nil
}

func usedMemory(ctx context.Context, w *flow.World) (int64, error) {
	text, err := w.RDB.Info(ctx, "memory").Result()
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if number, found := strings.CutPrefix(strings.TrimSpace(line), "used_memory:"); found {
			return strconv.ParseInt(number, 10, 64)
		}
	}
	return 0, errors.New("INFO has no used_memory")
}
