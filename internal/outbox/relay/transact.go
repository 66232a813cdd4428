package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

const (
	// clockTimeout limits asking Redis for the time, and other small questions.
	clockTimeout = 5 * time.Second
	// redisPhase is how long after its begin a transaction may still wait for Redis.
	// [store.Rows.Put] requires less than store.MaxCall.
	redisPhase = 8 * time.Second
	// startWithin is how old an outlook may be when a transaction begins.
	startWithin = 5 * time.Second
	// stopGrace is how long a lane may still wait for Redis when it must stop.
	stopGrace = 3 * time.Second
	// commitTimeout limits the end of a transaction.
	commitTimeout = 15 * time.Second
)

// errRedis marks a failure of Redis, not of the database.
var errRedis = errors.New("redis")

var errSlow = errors.New("the database is too slow to begin it")

// transact runs work in a transaction and commits. It outlives ctx by the longest wait for
// Redis: calls to Redis have a context of their own, which ends soon after ctx but not with
// it, so that a sent call can be answered.
func (r *Relay) transact(ctx context.Context, o outlook, work func(ctx, redis context.Context, t *table.Tx) error) error {
	if time.Since(o.read) > startWithin {
		return fmt.Errorf("outbox transaction: %w", errSlow)
	}
	redis, end := context.WithTimeout(context.WithoutCancel(ctx), redisPhase)
	defer end()
	defer context.AfterFunc(ctx, func() {
		timer := time.NewTimer(stopGrace)
		defer timer.Stop()
		select {
		case <-timer.C:
			end()
		case <-redis.Done():
		}
	})()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), redisPhase+commitTimeout)
	defer cancel()
	if err := r.db.Within(ctx, func(t *table.Tx) error { return work(ctx, redis, t) }); err != nil {
		return fmt.Errorf("outbox transaction: %w", err)
	}
	return nil
}

// outlook begins a round with the time of Redis.
func (r *Relay) outlook(ctx context.Context) (outlook, error) {
	read := time.Now()
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	now, err := r.config.Clock(ctx)
	if err != nil {
		return outlook{}, fmt.Errorf("%w: %w", errRedis, err)
	}
	ahead := unknownSkew
	if skew := r.skew.Load(); skew != nil {
		ahead = *skew + skewMargin
	}
	return outlook{now: now, read: read, horizon: r.config.Horizon, ahead: ahead}, nil
}
