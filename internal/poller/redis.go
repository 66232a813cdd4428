package poller

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// The waits between two calls of the store that had no answer. The limit is
// part of how long a shard stands still after a failover, so it is short. It
// costs little: the store's client soon dials a dead Redis once a second only.
const (
	redisBackoffInitial = 50 * time.Millisecond
	redisBackoffLimit   = 500 * time.Millisecond
)

// redisView is a shard's Redis: the calls of its store, whether it answers them,
// and what its clock says. It is safe for concurrent use.
type redisView struct {
	config *Config
	store  Store
	log    *slog.Logger
	ctx    context.Context // of the calls: what fails after its end is nobody's trouble
	// downShards is how many shards of the queue have no answer.
	downShards *atomic.Int32
	offset     atomic.Int64 // Redis' clock, in Unix nanoseconds, minus ours
	down       atomic.Bool
}

func (r *redisView) claim(request message.ClaimRequest) (claim message.Claim, err error) {
	err = r.ask("claim", func(ctx context.Context) (err error) {
		claim, err = r.store.Claim(ctx, request)
		return err
	})
	return claim, err
}

func (r *redisView) settle(settlement message.Settlement) (stale bool, err error) {
	err = r.ask("settle", func(ctx context.Context) (err error) {
		stale, err = r.store.Settle(ctx, settlement)
		return err
	})
	return stale, err
}

func (r *redisView) reclaim(which message.Reclaim) (reclaimed int, more bool, err error) {
	err = r.ask("reclaim", func(ctx context.Context) (err error) {
		reclaimed, more, err = r.store.Reclaim(ctx, which)
		return err
	})
	return reclaimed, more, err
}

// topics are those that the queue takes now. Whether Redis answers, the loop finds out.
func (r *redisView) topics() (topics message.Topics, err error) {
	err = r.call("claim", func(ctx context.Context) (err error) {
		topics, err = r.config.Topics.Ask(ctx)
		return err
	})
	return topics, err
}

// confirm waits until the claim is confirmed. Whether Redis answers, the loop finds out.
func (r *redisView) confirm(token message.ClaimToken) error {
	return r.call("claim", func(ctx context.Context) error {
		return r.store.Confirm(ctx, token)
	})
}

func (r *redisView) parked() (parked []message.ParkedRoute, err error) {
	err = r.ask("claim", func(ctx context.Context) (err error) {
		parked, err = r.store.Parked(ctx)
		return err
	})
	return parked, err
}

// handOver gives up the lease. Whether Redis answers is nobody's trouble any more.
func (r *redisView) handOver() error {
	return r.call("drain", func(ctx context.Context) error {
		return r.store.HandOver(ctx, r.config.Instance)
	})
}

// ask makes a call, and notes whether it was answered.
func (r *redisView) ask(event string, call func(context.Context) error) error {
	err := r.call(event, call)
	if err != nil {
		r.silent(event, err)
		return err
	}
	r.answered()
	return nil
}

// call limits a call's time. A panic in it is no answer.
func (r *redisView) call(event string, call func(context.Context) error) (err error) {
	defer recovered(r.log, event, &err)
	ctx, cancel := r.limited()
	defer cancel()
	return call(ctx)
}

// limited is the context of one call.
func (r *redisView) limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.ctx, r.config.Claims.callTimeout())
}

// sawTime takes the clock of an answer that was received then.
func (r *redisView) sawTime(redis time.Time, received time.Duration) {
	r.offset.Store(redis.UnixNano() - int64(received))
}

// clock is what Redis' clock said at that instant of ours: never ahead of it but
// by its own drift.
func (r *redisView) clock(at time.Duration) time.Time {
	return time.Unix(0, r.offset.Load()+int64(at))
}

func (r *redisView) silent(event string, err error) {
	if r.ctx.Err() != nil || r.down.Swap(true) {
		return
	}
	if r.downShards.Add(1) == 1 {
		r.log.Warn("redis unavailable", "event", event, "err", err)
	}
}

func (r *redisView) answered() {
	if r.down.Load() && r.down.Swap(false) && r.downShards.Add(-1) == 0 {
		r.log.Info("redis back", "event", "claim")
	}
}

// leave forgets the shard's trouble: nobody looks any more.
func (r *redisView) leave() {
	if r.down.Swap(false) {
		r.downShards.Add(-1)
	}
}
