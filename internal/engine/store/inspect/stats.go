package inspect

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
	"github.com/delaybridge/delaybridge/internal/engine/store/pause"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// ShardStats counts the contents of one shard.
type ShardStats struct {
	// Waiting counts the messages that wait; of these, Parked counts those that
	// are parked, Due those that are due and not parked.
	Waiting, Due, Parked int64
	// InFlight counts messages that are claimed and not settled, in Claims claims.
	InFlight, Claims int64
	// Dead counts dead letters.
	Dead int64
	// OldestDueAge is how long ago the first message that waits and is not parked
	// was due; 0 if none is.
	OldestDueAge time.Duration
	// NextDue is the due time of the first message that waits and is not parked,
	// OldestParked that of the first that is parked; zero if there is none.
	NextDue, OldestParked time.Time
	// Routes are those for which messages are parked.
	Routes []message.ParkedRoute
	// Holder is the instance that has the lease; empty if there is none.
	Holder string
	// Born is when the shard was made, by Redis' clock; zero if that is not known.
	Born time.Time
	// Epoch is that of the layout to which the shard is bound.
	Epoch string
	// Drained is set if no message is here that has another home in that layout.
	Drained bool
	// Ledger counts the rows of a database that must still be told how their messages ended.
	Ledger int64
	// Counters are the shard's, by name; see the sum in the package comment.
	Counters map[string]int64
}

// Stats counts the contents of a shard.
func (a *Admin) Stats(ctx context.Context, shard int) (ShardStats, error) {
	if shard < 0 || shard >= store.MaxShards {
		return ShardStats{}, fmt.Errorf("stats of shard %d: must be from 0 to %d", shard, store.MaxShards-1)
	}
	if _, err := a.queue.Layout(ctx); err != nil {
		return ShardStats{}, err
	}
	k := a.queue.Keys().Shard(shard)
	cmd, err := a.queue.Run(ctx, scripts.Stats, []string{k.Due, k.Msg, k.Dead, k.Deadlines, k.Holder, k.Meta, k.Settled})
	if err != nil {
		return ShardStats{}, fmt.Errorf("stats: %w", err)
	}
	r := scripts.NewReply(cmd)
	stats := ShardStats{
		Waiting: r.Int(1), Due: r.Int(2), InFlight: r.Int(3) - r.Int(1), Dead: r.Int(4), Claims: r.Int(5),
		Holder: r.Text(7), Counters: map[string]int64{}, Parked: r.Int(10),
	}
	if head := r.Int(6); head >= 0 {
		stats.NextDue = time.UnixMilli(head)
		stats.OldestDueAge = max(0, time.Duration(r.Int(0)-head)*time.Millisecond)
	}
	counters := r.List(8)
	var drained string
	for i := 0; i+1 < len(counters.Values); i += 2 {
		switch counters.Text(i) {
		case "epoch":
			stats.Epoch = counters.Text(i + 1)
		case "drained":
			drained = counters.Text(i + 1)
		}
		n, err := strconv.ParseInt(counters.Text(i+1), 10, 64)
		switch {
		case err != nil:
		case counters.Text(i) == layout.BornField:
			stats.Born = time.UnixMilli(n)
		default:
			stats.Counters[counters.Text(i)] = n
		}
	}
	stats.Ledger = r.Int(9)
	_, stats.Drained = layout.DrainedAt(drained, stats.Epoch)
	if r.Err != nil || stats.Parked == 0 {
		return stats, r.Err
	}
	stats.Routes, err = a.queue.Shard(shard).Parked(ctx)
	for _, route := range stats.Routes {
		if stats.OldestParked.IsZero() || route.Oldest.Before(stats.OldestParked) {
			stats.OldestParked = route.Oldest
		}
	}
	return stats, err
}

// QueueCounters are the scripts' counters for the whole queue.
type QueueCounters struct {
	// Life changes if the queue is made again after a wipe, and counts from 0.
	Life string
	// Retired are the counters of shards that were dropped, by name.
	Retired map[string]int64
	// Shards are the counters of the shards in use, by name; nil for a shard that has not
	// answered or has no meta, because it was dropped meanwhile or Redis has lost it.
	Shards []map[string]int64
}

// Counters reads the named counters of every shard, with one pipeline per node.
// With an error some shards have not answered; the others are returned
// nevertheless. It is [ErrNoLayout] if there is no queue.
func (a *Admin) Counters(ctx context.Context, names []string) (QueueCounters, error) {
	layout, err := a.queue.LoadLayout(ctx) // Read before the shards: a counter may then be missing from both, but never be in both.
	if err != nil {
		return QueueCounters{}, err
	}
	counters := QueueCounters{Life: layout.Life(), Retired: layout.Retired, Shards: make([]map[string]int64, layout.InUse())}
	fields := append([]string{"epoch"}, names...)
	metas, err := ask(ctx, a.queue, layout.Keys()[:layout.InUse()], func(pipe redis.Pipeliner, k keys.Shard) *redis.SliceCmd {
		return pipe.HMGet(ctx, k.Meta, fields...)
	})
	if err != nil {
		err = fmt.Errorf("read counters of %s: %w", a.queue.Name(), err)
	}
	for i, cmd := range metas {
		if values := cmd.Val(); cmd.Err() == nil && values[0] != nil {
			counters.Shards[i] = parseCounters(names, values[1:])
		}
	}
	return counters, err
}

func parseCounters(names []string, values []any) map[string]int64 {
	counters := make(map[string]int64, len(names))
	for i, name := range names {
		text, _ := values[i].(string)
		counters[name], _ = strconv.ParseInt(text, 10, 64) // 0 if it was never counted
	}
	return counters
}

// statsAtOnce is how many shards are asked at a time.
const statsAtOnce = 8

// QueueStats counts the contents of a queue, shard by shard.
type QueueStats struct {
	Layout *store.Layout
	Shards []ShardStats
	// Paused has the pauses by topic; the empty topic stands for the whole queue.
	Paused map[string]pause.Pause
	// Losses are those that nobody has acknowledged.
	Losses []store.Loss
}

// StatsOfAll counts the contents of all shards that are polled, those of earlier layouts
// included. Its error is [ErrNoLayout] if there is no queue.
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

// SampleSizes estimates the size of the waiting messages from a sample.
func (a *Admin) SampleSizes(ctx context.Context, stats *QueueStats) (SizeEstimate, error) {
	waiting := make([]int64, len(stats.Shards))
	for i := range waiting {
		waiting[i] = stats.Shards[i].Waiting
	}
	return a.sampleSizes(ctx, stats.Layout.Keys()[:len(waiting)], waiting)
}

// Sum adds up all shards. It lists each route once, the one with the most messages
// first, and has no holder, epoch or ledger.
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

// Counted returns the scripts' counters since the queue was made, by name, those of dropped shards included. It is nil if a shard
// in use has none: Redis has lost it, or it was dropped after the layout was read.
func (s *QueueStats) Counted() map[string]int64 {
	counted := maps.Clone(s.Layout.Retired)
	for i := range s.Shards[:s.Layout.InUse()] {
		if s.Shards[i].Epoch == "" {
			return nil
		}
	}
	for name, n := range s.Sum().Counters {
		counted[name] += n
	}
	return counted
}

// MadeAt returns when the oldest shard of the queue was made: before that there was no
// queue, or Redis has lost it. It is zero if that is not known.
func (s *QueueStats) MadeAt() (at time.Time) {
	for i := range s.Shards {
		at = earlier(at, s.Shards[i].Born)
	}
	return at
}

// HeldShards returns how many shards are held by some instance.
func (s *QueueStats) HeldShards() (held int) {
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

// earlier returns the earlier of two times; zero means none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
