package main

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

// subject is what is measured.
type subject interface {
	// schedule stores the messages from first on, so many, in one call.
	schedule(ctx context.Context, first, n int) error
	// drain takes all that is due in a shard and removes it, and returns how many there were.
	drain(ctx context.Context, shard int) (int, error)
}

// step is one measurement of a subject.
type step struct {
	name  string
	count int
	sums  bool // is part of a message's life in batches
	do    func(context.Context) error
}

func (s settings) steps(on subject) []step {
	single, lone := s.count/10, s.count/40
	steps := []step{
		{"schedule, batches", s.count, true, func(ctx context.Context) error {
			return scheduleAll(ctx, on, 0, s.count, batchSize, 1)
		}},
		{"drain, 8 shards", s.count, true, func(ctx context.Context) error { return drainAll(ctx, on, s.count) }},
		{"schedule one by one, 64 callers", single, false, func(ctx context.Context) error {
			return scheduleAll(ctx, on, s.count, single, 1, 64)
		}},
		{"schedule one by one, lone caller", lone, false, func(ctx context.Context) error {
			return scheduleAll(ctx, on, s.count+single, lone, 1, 1)
		}},
	}
	if s.batches {
		return steps[:2]
	}
	return steps
}

// scheduleAll schedules count messages in calls of so many, by so many callers.
func scheduleAll(ctx context.Context, on subject, first, count, size, callers int) error {
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range callers {
		group.Go(func() error {
			for {
				at := int(next.Add(int64(size))) - size
				if at >= count {
					return nil
				}
				if err := on.schedule(ctx, first+at, min(size, count-at)); err != nil {
					return err
				}
			}
		})
	}
	return group.Wait()
}

func drainAll(ctx context.Context, on subject, want int) error {
	var drained atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for shard := range shards {
		group.Go(func() error {
			n, err := on.drain(ctx, shard)
			drained.Add(int64(n))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if n := int(drained.Load()); n != want {
		return fmt.Errorf("drained %d of %d messages", n, want)
	}
	return nil
}

// identity is the message's, as long as a ULID.
func identity(i int) string { return fmt.Sprintf("m-%024d", i) }

// dueAt is when the message is due: alike, or in another order than that of the
// identities, within the last ten minutes.
func dueAt(i int, alike bool) int64 {
	if alike {
		return epoch
	}
	return epoch + int64(i*7919%600_000)
}

var epoch = time.Now().Add(-time.Hour).UnixMilli()

// serverTime is the processor time of Redis up to now.
func serverTime(ctx context.Context, rdb *redis.Client) (sum time.Duration, err error) {
	info, err := rdb.InfoMap(ctx, "cpu").Result()
	if err != nil {
		return 0, err
	}
	for _, part := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(info["CPU"][part], 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(seconds * float64(time.Second))
	}
	return sum, nil
}

// clientTime is the processor time of this process up to now.
func clientTime() time.Duration {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used) // It never fails for oneself.
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
