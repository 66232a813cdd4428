package inspect

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// ShardStats is what one shard holds.
type ShardStats struct {
	// Waiting counts messages that wait: Parked are those of them that are parked,
	// Due those that are due and not parked.
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
	// Routes are those that messages are parked for.
	Routes []message.ParkedRoute
	// Holder is the instance whose lease lasts; empty if there is none.
	Holder string
	// Born is when it was made, by Redis' clock; zero where that is not known.
	Born time.Time
	// Epoch is that of the layout to which the shard is bound.
	Epoch string
	// Drained is set where no message is here that has another home in that layout.
	Drained bool
	// Ledger counts the rows of a database that are to be told what became of their messages.
	Ledger int64
	// Counters are the shard's, by name; see the sum in the package comment.
	Counters map[string]int64
}

// Stats counts what a shard holds.
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
