package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

// parallelStats is how many shards of a queue are asked at a time.
const parallelStats = 4

// Stats implements [telemetry.StatsSource]: the contents of the shards that
// this instance holds.
func (set *Queues) Stats(ctx context.Context) ([]telemetry.QueueStats, error) {
	return askAll(set, func(q *queue) ([]telemetry.QueueStats, error) { return q.stats(ctx) })
}

// Counters implements [telemetry.StatsSource]: the scripts' counters in all
// shards, whoever holds them.
func (set *Queues) Counters(ctx context.Context, names []string) ([]telemetry.QueueCounters, error) {
	return askAll(set, func(q *queue) ([]telemetry.QueueCounters, error) {
		counters, err := inspect.NewAdmin(q.store).Counters(ctx, names)
		if counters.Shards == nil {
			return nil, err
		}
		return []telemetry.QueueCounters{{
			Queue: q.store.Name(), Life: counters.Life, Retired: counters.Retired, Shards: counters.Shards,
		}}, err
	})
}

// askAll asks all polling queues at once, so that one whose Redis does not answer does
// not delay the others. It skips queues that do not poll, whose layout may not exist yet.
func askAll[T any](set *Queues, ask func(q *queue) ([]T, error)) ([]T, error) {
	queues := set.all()
	answers := make([][]T, len(queues))
	problems := make([]error, len(queues))
	var asking sync.WaitGroup
	for i, q := range queues {
		if q.poller.Load() == nil {
			continue
		}
		asking.Go(func() {
			var err error
			if answers[i], err = ask(q); err != nil {
				problems[i] = fmt.Errorf("queue %s: %w", q.store.Name(), err)
			}
		})
	}
	asking.Wait()
	return slices.Concat(answers...), errors.Join(problems...)
}

// stats asks for the shards that this instance polls, and leaves out those that
// another one still holds.
func (q *queue) stats(ctx context.Context) ([]telemetry.QueueStats, error) {
	polled, instance := q.polled(), q.member.Instance()
	answers := make([]telemetry.QueueStats, len(polled))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelStats)
	for i, shard := range polled {
		group.Go(func() error {
			stats, err := inspect.NewAdmin(q.store).Stats(ctx, shard)
			if err != nil || stats.Holder != instance {
				return err
			}
			answers[i] = telemetry.QueueStats{
				Queue: q.store.Name(), Shard: shard, Instance: message.InstanceName(instance),
				Waiting: stats.Waiting, Due: stats.Due, InFlight: stats.InFlight,
				Dead: stats.Dead, Parked: stats.Parked, OldestDueAge: stats.OldestDueAge,
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(answers, func(s telemetry.QueueStats) bool { return s.Queue == "" }), nil
}
