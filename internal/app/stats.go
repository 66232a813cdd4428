package app

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/internal/poller"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

// parallelStats is how many shards of a queue are asked at a time.
const parallelStats = 4

// Stats implements [telemetry.StatsSource]: what the shards that this instance
// holds hold. All queues are asked at once: one whose Redis does not answer
// takes no time from the others.
func (set *queueSet) Stats(ctx context.Context) ([]telemetry.QueueStats, error) {
	all := make([][]telemetry.QueueStats, len(set.runners))
	problems := make([]error, len(set.runners))
	var asking sync.WaitGroup
	for i, r := range set.runners {
		p := r.polling()
		if p == nil {
			continue
		}
		asking.Go(func() {
			var err error
			if all[i], err = r.stats(ctx, p); err != nil {
				problems[i] = fmt.Errorf("queue %s: %w", r.queue.Name(), err)
			}
		})
	}
	asking.Wait()
	var found []telemetry.QueueStats
	for _, stats := range all {
		found = append(found, stats...)
	}
	return found, errors.Join(problems...)
}

// stats asks for the shards that this instance polls, and leaves out those that
// another one still holds. The keeper adds what dropped shards have counted.
func (r *queueRunner) stats(ctx context.Context, p *poller.Poller) ([]telemetry.QueueStats, error) {
	polled := p.Shards()
	answers := make([]*telemetry.QueueStats, len(polled))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelStats)
	for i, shard := range polled {
		group.Go(func() error {
			stats, err := r.queue.Stats(ctx, shard)
			if err != nil || stats.Holder != r.instance {
				return err
			}
			answers[i] = &telemetry.QueueStats{
				Queue: r.queue.Name(), Shard: shard, Instance: r.instance,
				Waiting: stats.Waiting, Due: stats.Due, InFlight: stats.InFlight,
				Dead: stats.Dead, OldestDueAge: stats.OldestDueAge, Counters: stats.Counters,
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var held []telemetry.QueueStats
	for _, stats := range answers {
		if stats != nil {
			held = append(held, *stats)
		}
	}
	if layout := r.layout.Load(); r.keeps.Load() && len(layout.Retired) > 0 {
		held = append(held, telemetry.QueueStats{Queue: r.queue.Name(), Counters: layout.Retired})
	}
	return held, nil
}
