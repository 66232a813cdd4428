package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

const (
	// redisPhase is how long after its begin a transaction may still wait for Redis.
	// [store.Rows.Put] wants it to be shorter than store.MaxCall.
	redisPhase = 8 * time.Second
	// startWithin is how old a look may be when a transaction begins.
	startWithin = 5 * time.Second
	// stopGrace is how long a lane may still wait for Redis when it shall stop.
	stopGrace = 3 * time.Second
	// commitTimeout limits the end of a transaction.
	commitTimeout = 15 * time.Second
)

// errRedis marks a failure of Redis, not of the database.
var errRedis = errors.New("redis")

var errSlow = errors.New("the database is too slow to begin it")

// transaction is one that may wait for Redis.
type transaction struct {
	*table.Tx
	began time.Time
}

// redis is the context for calls to Redis within the transaction: they end soon
// after ctx, but not with it, since what was sent should be answered.
func (t *transaction) redis(ctx context.Context) (context.Context, context.CancelFunc) {
	inner, cancel := context.WithDeadline(context.WithoutCancel(ctx), t.began.Add(redisPhase))
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(stopGrace)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-inner.Done():
		}
	})
	return inner, func() { stop(); cancel() }
}

// transact runs work in a transaction and commits. It outlives ctx by as long as
// Redis may be waited for.
func (r *Relay) transact(ctx context.Context, look outlook, work func(ctx context.Context, t *transaction) error) error {
	if time.Since(look.read) > startWithin {
		return fmt.Errorf("outbox transaction: %w", errSlow)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), redisPhase+commitTimeout)
	defer cancel()
	began := time.Now()
	err := r.db.Within(ctx, func(tx *table.Tx) error { return work(ctx, &transaction{tx, began}) })
	if err != nil {
		return fmt.Errorf("outbox transaction: %w", err)
	}
	return nil
}

// outlook is what there is to do.
type outlook struct {
	now     time.Time // by Redis' clock, from before the look
	read    time.Time // by our own, when that was read
	horizon time.Duration
	queues  map[string]table.Waiting
	whole   bool // everything was looked at
}

// untilMs is up to when rows are loaded.
func (o outlook) untilMs() int64 { return o.now.Add(o.horizon).UnixMilli() }

// outlook begins a round with the time of Redis.
func (r *Relay) outlook(ctx context.Context) (outlook, error) {
	read := time.Now()
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	now, err := r.config.Clock(ctx)
	if err != nil {
		return outlook{}, fmt.Errorf("%w: %w", errRedis, err)
	}
	return outlook{now: now, read: read, horizon: r.config.Horizon}, nil
}
