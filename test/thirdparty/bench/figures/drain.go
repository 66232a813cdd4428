package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/test/trial"
)

// filling are messages of 256 bytes with ids of 26, of which nobody measures the lateness.
type filling struct {
	count int
	ids   string // the first character, or more
	tags  []string
	// client and topic are the world's where they are not set.
	client *delay.Client
	topic  string
	due    time.Time     // of the first
	step   time.Duration // to the next
}

// fill schedules them.
func fill(ctx context.Context, w *trial.World, f filling) error {
	body := make([]byte, 256)
	var group errgroup.Group
	group.SetLimit(8)
	const batch = 500
	for start := 0; start < f.count; start += batch {
		group.Go(func() error {
			requests := make([]delay.Request, min(batch, f.count-start))
			for i := range requests {
				n := start + i
				requests[i] = delay.Request{
					Message: delay.Message{ID: fmt.Sprintf("%s-%024d", cmp.Or(f.ids, "d"), n), Topic: cmp.Or(f.topic, w.Topic), Body: body, Tags: f.tags},
					When:    delay.At(f.due.Add(time.Duration(n) * f.step)),
				}
			}
			results, err := cmp.Or(f.client, w.Client).ScheduleBatch(ctx, requests)
			for _, result := range results {
				err = errors.Join(err, result.Err)
			}
			return err
		})
	}
	return group.Wait()
}

// fillAhead schedules them for one instant, and says which.
func fillAhead(ctx context.Context, w *trial.World, f filling, perSecond int) (due time.Time, err error) {
	f.due = time.Now().Add(time.Duration(f.count/perSecond+5) * time.Second)
	if err := fill(ctx, w, f); err != nil {
		return due, err
	}
	if time.Now().After(f.due) {
		return due, errors.New("the messages were due before all were scheduled")
	}
	return f.due, nil
}

// backlogFigure measures memory while a million messages are due and the
// broker is down, and while they drain.
func backlogFigure(ctx context.Context, r run) error {
	count := cmp.Or(r.count, 1_000_000)
	w, err := r.world(ctx, trial.Options{})
	if err != nil {
		return err
	}
	defer w.Close()
	if err := w.Broker.Server().Stop(); err != nil {
		return err
	}
	idle := w.Bridge.ResidentBytes()
	if err := fill(ctx, w, filling{count: count, due: time.Now()}); err != nil {
		return err
	}
	var down []int64
	for range 30 {
		if err := trial.Sleep(ctx, time.Second); err != nil {
			return err
		}
		down = append(down, w.Bridge.ResidentBytes()>>20)
	}
	if err := w.Broker.Server().Start(ctx); err != nil {
		return err
	}
	begin, draining := time.Now(), int64(0)
	var end time.Time
	watch := func(ctx context.Context) error {
		for trial.Sleep(ctx, 100*time.Millisecond) == nil {
			draining = max(draining, w.Bridge.ResidentBytes()>>20)
		}
		return nil
	}
	err = trial.While(ctx, watch, func(ctx context.Context) (err error) { end, err = w.Drained(ctx); return err })
	if err != nil {
		return err
	}
	totals, err := w.Totals(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("backlog  %-8s %d due, broker down for 30 s: resident %d MiB idle, %d to %d MiB down, at most %d MiB draining; drained in %s after its return; dead %d\n",
		r.broker, count, idle>>20, slices.Min(down), slices.Max(down), draining, ms(end.Sub(begin)), totals.Dead)
	if totals.Dead > 0 || totals.Counters["published"] != int64(count) {
		return fmt.Errorf("backlog: published %d of %d, dead %d", totals.Counters["published"], count, totals.Dead)
	}
	return nil
}

// memoryFigure measures what a waiting message of 26 bytes id and 256 bytes
// body takes in Redis.
func memoryFigure(ctx context.Context, r run) error {
	count := cmp.Or(r.count, 1_000_000)
	w, err := r.world(ctx, trial.Options{})
	if err != nil {
		return err
	}
	defer w.Close()
	before, err := usedMemory(ctx, w)
	if err != nil {
		return err
	}
	if err := fill(ctx, w, filling{count: count, due: time.Now().Add(24 * time.Hour)}); err != nil {
		return err
	}
	after, err := usedMemory(ctx, w)
	each := float64(after-before) / float64(count)
	fmt.Printf("memory   %-8s %d waiting: %d MiB, %.0f bytes each, %.0f beyond id and body\n",
		r.broker, count, (after-before)>>20, each, each-26-256)
	return err
}

func usedMemory(ctx context.Context, w *trial.World) (int64, error) {
	info, err := redisInfo(ctx, w)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(info["used_memory"], 10, 64)
}
