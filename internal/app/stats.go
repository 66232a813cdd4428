package app

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
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
		p := r.poller.Load()
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
// another one still holds.
func (r *queueRunner) stats(ctx context.Context, p *poller.Poller) ([]telemetry.QueueStats, error) {
	polled, instance := p.Shards(), r.member.Instance()
	answers := make([]*telemetry.QueueStats, len(polled))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelStats)
	for i, shard := range polled {
		group.Go(func() error {
			stats, err := inspect.NewAdmin(r.queue).Stats(ctx, shard)
			if err != nil || stats.Holder != instance {
				return err
			}
			answers[i] = &telemetry.QueueStats{
				Queue: r.queue.Name(), Shard: shard, Instance: message.InstanceName(instance),
				Waiting: stats.Waiting, Due: stats.Due, InFlight: stats.InFlight,
				Dead: stats.Dead, Parked: stats.Parked, OldestDueAge: stats.OldestDueAge,
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
	return held, nil
}

// Counters implements [telemetry.StatsSource]: what the scripts have counted in
// all shards, whoever holds them.
func (set *queueSet) Counters(ctx context.Context, names []string) ([]telemetry.QueueCounters, error) {
	all := make([]*telemetry.QueueCounters, len(set.runners))
	problems := make([]error, len(set.runners))
	var asking sync.WaitGroup
	for i, r := range set.runners {
		if r.poller.Load() == nil {
			continue // There may be no layout yet.
		}
		asking.Go(func() {
			counters, err := inspect.NewAdmin(r.queue).Counters(ctx, names)
			if err != nil {
				problems[i] = fmt.Errorf("queue %s: %w", r.queue.Name(), err)
			}
			if counters.Shards != nil {
				all[i] = &telemetry.QueueCounters{
					Queue: r.queue.Name(), Life: counters.Life, Retired: counters.Retired, Shards: counters.Shards,
				}
			}
		})
	}
	asking.Wait()
	var found []telemetry.QueueCounters
	for _, counters := range all {
		if counters != nil {
			found = append(found, *counters)
		}
	}
	return found, errors.Join(problems...)
}
