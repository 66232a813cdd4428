package inspect

import (
	"cmp"
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/pause"
)

// statsAtOnce is how many shards are asked at a time.
const statsAtOnce = 8

// QueueStats is what a queue holds, shard by shard.
type QueueStats struct {
	Layout *store.Layout
	Shards []ShardStats
	// Paused is which topics are paused; the empty one is the whole queue.
	Paused map[string]pause.Pause
	// Losses are those that nobody has acknowledged.
	Losses []store.Loss
}

// StatsOfAll counts what all shards hold that are polled, also those of earlier layouts.
// Its error is [ErrNoLayout] where there is no queue.
func (a *Admin) StatsOfAll(ctx context.Context) (stats QueueStats, err error) {
	if stats.Layout, err = a.queue.AwaitLayout(ctx); err != nil {
		return QueueStats{}, err
	}
	stats.Shards = make([]ShardStats, stats.Layout.Polled())
	group, asking := errgroup.WithContext(ctx)
	group.SetLimit(statsAtOnce)
	for i := range stats.Shards {
		group.Go(func() (err error) {
			stats.Shards[i], err = a.Stats(asking, i)
			return err
		})
	}
	err = group.Wait()
	if err == nil {
		stats.Paused, err = a.Paused(ctx)
	}
	if err == nil {
		stats.Losses, err = a.Losses(ctx)
	}
	if err != nil {
		return QueueStats{}, store.Unavailable(err)
	}
	return stats, nil
}

// SampleSizes estimates how large the messages are that wait. It measures some of them.
func (a *Admin) SampleSizes(ctx context.Context, stats *QueueStats) (SizeEstimate, error) {
	waiting := make([]int64, len(stats.Shards))
	for i := range waiting {
		waiting[i] = stats.Shards[i].Waiting
	}
	return a.sampleSizes(ctx, stats.Layout.Keys()[:len(waiting)], waiting)
}

// Sum is all shards together. Its routes are each there once, the one with the most
// messages first; it has no holder, epoch or ledger.
func (s *QueueStats) Sum() ShardStats {
	sum := ShardStats{Counters: map[string]int64{}}
	for i := range s.Shards {
		shard := &s.Shards[i]
		sum.Waiting, sum.Due, sum.Parked = sum.Waiting+shard.Waiting, sum.Due+shard.Due, sum.Parked+shard.Parked
		sum.InFlight, sum.Claims, sum.Dead = sum.InFlight+shard.InFlight, sum.Claims+shard.Claims, sum.Dead+shard.Dead
		sum.OldestDueAge = max(sum.OldestDueAge, shard.OldestDueAge)
		sum.NextDue, sum.OldestParked = earlier(sum.NextDue, shard.NextDue), earlier(sum.OldestParked, shard.OldestParked)
		for name, n := range shard.Counters {
			sum.Counters[name] += n
		}
	}
	sum.Routes = s.routes()
	return sum
}

// MadeAt is since when the queue has what it has, or the first of its shards: before, there
// was none, or Redis has lost it. It is zero where that is not known.
func (s *QueueStats) MadeAt() (at time.Time) {
	for i := range s.Shards {
		at = earlier(at, s.Shards[i].Born)
	}
	return at
}

// Held is how many shards an instance polls.
func (s *QueueStats) Held() (held int) {
	for i := range s.Shards {
		if s.Shards[i].Holder != "" {
			held++
		}
	}
	return held
}

func (s *QueueStats) routes() []message.ParkedRoute {
	byName := map[string]*message.ParkedRoute{}
	for i := range s.Shards {
		for _, p := range s.Shards[i].Routes {
			sum := byName[p.Route]
			if sum == nil {
				byName[p.Route] = &p
				continue
			}
			sum.Messages, sum.Oldest = sum.Messages+p.Messages, earlier(sum.Oldest, p.Oldest)
			if p.Since.Before(sum.Since) {
				sum.Since, sum.Reason = p.Since, p.Reason
			}
		}
	}
	routes := make([]message.ParkedRoute, 0, len(byName))
	for _, p := range byName {
		routes = append(routes, *p)
	}
	slices.SortFunc(routes, func(a, b message.ParkedRoute) int {
		return cmp.Or(cmp.Compare(b.Messages, a.Messages), cmp.Compare(a.Route, b.Route))
	})
	return routes
}

// earlier is the first of two times; a zero one is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
