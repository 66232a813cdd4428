package inspect

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
)

// maxWithin is how far a demand may look ahead: as far as a due time may be away.
const maxWithin = message.MaxDelayYears * 366 * 24 * time.Hour

// Demand is what consumers of a queue will get within a time. It is read in parts, as a
// [Forecast] is.
type Demand struct {
	// Now is Redis' time at the start.
	Now time.Time
	// Due counts the messages that are due and not parked, Upcoming those that fall due
	// within the time.
	Due, Upcoming int64
	// Parked counts the messages that are parked: nobody knows when they leave.
	Parked int64
	// IsPaused is set while the whole queue is paused.
	IsPaused bool
}

// Messages counts the messages to expect: none while the queue is paused.
func (d *Demand) Messages() int64 {
	if d.IsPaused {
		return 0
	}
	return d.Due + d.Upcoming
}

// Demand counts what is due now, or within a time from now: from 0 to 10 years, else its error is a
// [message.InvalidError]. It may be asked every second: it costs three counts per shard, in one
// pipeline per node, and reads no message.
func (a *Admin) Demand(ctx context.Context, within time.Duration) (d Demand, err error) {
	if within < 0 || within > maxWithin {
		return d, &message.InvalidError{Field: "within", Value: within.String(), Limit: fmt.Sprintf("must be from 0s to %d years", message.MaxDelayYears)}
	}
	if d.Now, err = a.queue.Clock(ctx); err != nil {
		return d, err
	}
	err = a.queue.Repeat(ctx, func(layout *store.Layout) (err error) {
		d.Due, d.Upcoming, d.Parked, err = a.countDemand(ctx, layout, d.Now, d.Now.Add(within))
		return err
	})
	if err != nil {
		return Demand{}, err
	}
	paused, err := a.Paused(ctx)
	_, d.IsPaused = paused[""]
	return d, err
}

func (a *Admin) countDemand(ctx context.Context, layout *store.Layout, now, end time.Time) (due, upcoming, parked int64, err error) {
	type counts struct{ due, upcoming, parked *redis.IntCmd }
	from, to, slots := strconv.FormatInt(now.UnixMilli(), 10), strconv.FormatInt(end.UnixMilli(), 10), strconv.FormatInt(message.ParkedFrom, 10)
	shards, err := ask(ctx, a.queue, layout.Keys()[:layout.InUse()], func(pipe redis.Pipeliner, k keys.Shard) counts {
		return counts{pipe.ZCount(ctx, k.Due, "-inf", from), pipe.ZCount(ctx, k.Due, "("+from, to), pipe.ZCount(ctx, k.Due, slots, "+inf")}
	})
	if err != nil {
		return 0, 0, 0, fmt.Errorf("demand: %w", err)
	}
	for _, shard := range shards {
		due, upcoming, parked = due+shard.due.Val(), upcoming+shard.upcoming.Val(), parked+shard.parked.Val()
	}
	return due, upcoming, parked, nil
}
