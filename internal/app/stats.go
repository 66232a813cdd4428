package app

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/internal/telemetry"
)

// parallelStats is how many shards are asked at a time.
const parallelStats = 8

// Stats implements [telemetry.StatsSource]: the sums over the shards that this
// instance holds, of each queue that it polls.
func (set queueSet) Stats(ctx context.Context) ([]telemetry.QueueStats, error) {
	var all []telemetry.QueueStats
	var problems []error
	for _, r := range set {
		if r.polling() == nil {
			continue
		}
		stats, err := r.stats(ctx)
		if err != nil {
			problems = append(problems, fmt.Errorf("queue %s: %w", r.queue.Name(), err))
			continue
		}
		all = append(all, stats...)
	}
	return all, errors.Join(problems...)
}

func (r *queueRunner) stats(ctx context.Context) ([]telemetry.QueueStats, error) {
	layout, err := r.queue.Layout(ctx)
	if err != nil {
		return nil, err
	}
	held := make([]*telemetry.QueueStats, layout.Shards)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelStats)
	for shard := range layout.Shards {
		group.Go(func() error {
			stats, err := r.queue.Stats(ctx, shard)
			if err != nil || stats.Holder != r.instance {
				return err
			}
			held[shard] = &telemetry.QueueStats{
				Queue: r.queue.Name(), Waiting: stats.Waiting, Due: stats.Due, InFlight: stats.InFlight,
				Dead: stats.Dead, OldestDueAge: stats.OldestDueAge, Counters: stats.Counters,
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var all []telemetry.QueueStats
	for _, stats := range held {
		if stats != nil {
			all = append(all, *stats)
		}
	}
	return all, nil
}
