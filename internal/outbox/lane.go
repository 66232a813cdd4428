package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// idleLane is how often the lanes but the first look: it wakes them when there
	// is more than one batch.
	idleLane = 2 * time.Second
	// clockTimeout limits asking Redis for the time.
	clockTimeout = 5 * time.Second
	// stopGrace is how long a lane may still wait for Redis when it shall stop.
	stopGrace = 3 * time.Second
	// commitTimeout limits the end of a transaction.
	commitTimeout = 15 * time.Second
)

var (
	errRedis = errors.New("redis is away")
	errSeen  = errors.New("relay could not register")
)

// lane works on one batch at a time.
type lane struct {
	*Relay
	first bool
	wait  *backoff
	heads sweep
	ops   sweep
}

func newLane(r *Relay, first bool) *lane { return &lane{Relay: r, first: first, wait: newBackoff()} }

// run works until ctx ends. It returns nil: every failure is waited out.
func (l *lane) run(ctx context.Context) error {
	for {
		more, err := l.guardedRound(ctx)
		pause := l.config.Poll
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			pause = l.wait.next()
		case more:
			l.wait.reset()
			l.Wake()
			continue
		default:
			l.wait.reset()
			if !l.first {
				pause = max(idleLane, pause)
			}
		}
		if !sleep(ctx, pause, l.Relay.wake) {
			return nil
		}
	}
}

// guardedRound survives a panic, and says what is away.
func (l *lane) guardedRound(ctx context.Context) (more bool, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			l.registry.unclean()
			err = fmt.Errorf("panic: %v", cause)
			l.log.ErrorContext(ctx, "outbox relay panicked", "event", "outbox_panic", "err", err)
		}
	}()
	more, err = l.round(ctx)
	switch {
	case errors.Is(err, errRedis):
		l.redis.observe(ctx, err)
	case errors.Is(err, errSeen):
	default:
		l.redis.observe(ctx, nil)
		l.database.observe(ctx, err)
	}
	return more, err
}

// round works on one batch of operations and one of messages; more says that
// another may be had at once.
func (l *lane) round(ctx context.Context) (more bool, err error) {
	now, err := l.redisNow(ctx)
	if err != nil {
		return false, err
	}
	if !l.registry.alive() {
		if err := l.registry.beat(ctx); err != nil {
			return false, errors.Join(errSeen, err)
		}
	}
	look, err := l.db.look(ctx, l.names, now.Add(l.config.Horizon).UnixMilli())
	if err != nil || !look.operations && !look.heads {
		return false, err
	}
	deaths, err := l.db.deaths(ctx)
	if err != nil {
		return false, err
	}
	known := evidence{databaseMs: look.databaseMs, horizonMs: l.config.Horizon.Milliseconds(), deaths: deaths}
	if look.operations {
		if more, err = l.operate(ctx, look, known); err != nil {
			return false, err
		}
	}
	if !look.heads {
		return more, nil
	}
	moreHeads, err := l.load(ctx, look, known)
	return more || moreHeads, err
}

// patience is the context for calls to Redis within a transaction: they end soon
// after ctx, but not with it, since what was sent should be answered.
func patience(ctx context.Context) (context.Context, context.CancelFunc) {
	inner, cancel := context.WithTimeout(context.WithoutCancel(ctx), redisPhase)
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

// transact runs work in a transaction and commits. It outlives ctx for as long as
// [patience] does. Where the end is in doubt after something may have been
// written to Redis, the registry says so.
func (r *Relay) transact(ctx context.Context, work func(ctx context.Context, tx querier) (wrote bool, err error)) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), redisPhase+commitTimeout)
	defer cancel()
	tx, err := r.db.begin(ctx)
	if err != nil {
		return err
	}
	wrote, err := work(ctx, tx)
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		_ = tx.Rollback()
		if wrote {
			r.registry.unclean()
		}
		return fmt.Errorf("outbox transaction: %w", err)
	}
	return nil
}
