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

// errRedis marks a failure of Redis, not of the database.
var errRedis = errors.New("redis")

// lane works on one batch at a time.
type lane struct {
	relay *Relay
	first bool
	wait  *backoff
	heads sweep
	ops   sweep
}

func newLane(r *Relay, first bool) *lane { return &lane{relay: r, first: first, wait: newBackoff()} }

// run works until ctx ends. It returns nil: every failure is waited out.
func (l *lane) run(ctx context.Context) error {
	for {
		more, err := l.guardedRound(ctx)
		pause := l.relay.config.Poll
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // What fails at the end says nothing.
		case err != nil:
			pause = l.wait.next()
		case more:
			l.wait.reset()
			l.relay.Wake()
			continue
		default:
			l.wait.reset()
			if !l.first {
				pause = max(idleLane, pause)
			}
		}
		if !sleep(ctx, pause, l.relay.wake) {
			return nil
		}
	}
}

// guardedRound survives a panic, and says what is away.
func (l *lane) guardedRound(ctx context.Context) (more bool, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			l.relay.registry.unclean()
			err = fmt.Errorf("panic: %v", cause)
			l.relay.log.ErrorContext(ctx, "outbox relay panicked", "event", "outbox_panic", "err", err)
		}
	}()
	more, err = l.round(ctx)
	switch {
	case errors.Is(err, errRedis):
		l.relay.outages.redis.observe(ctx, err)
	case isDeadlock(err):
		// Producers of the same ids were in between. What Redis has done it will say
		// again.
		l.relay.log.DebugContext(ctx, "outbox transaction gave way", "event", "outbox_deadlock", "err", err)
		return true, nil
	default:
		l.relay.outages.redis.observe(ctx, nil)
		l.relay.outages.database.observe(ctx, err)
	}
	return more, err
}

// round works on one batch of operations and one of messages; more says that
// another may be had at once.
func (l *lane) round(ctx context.Context) (more bool, err error) {
	now, err := l.relay.redisNow(ctx)
	if err != nil {
		return false, err
	}
	look, err := l.relay.db.look(ctx, now, l.relay.config.Horizon)
	if err != nil || !look.operations && !look.heads {
		return false, err
	}
	if look.operations {
		more, err = l.ops.each(ctx, l.relay.names, func(queues []string, after cursor) (outcome, error) {
			return l.operate(ctx, look, queues, after)
		})
	}
	if err != nil || !look.heads || ctx.Err() != nil {
		return more, err
	}
	moreHeads, err := l.heads.each(ctx, l.relay.names, func(queues []string, after cursor) (outcome, error) {
		return l.load(ctx, look, queues, after)
	})
	return more || moreHeads, err
}

// register sees to it that others know of us before we write to Redis.
func (r *Relay) register(ctx context.Context) error {
	if r.registry.alive() {
		return nil
	}
	return r.registry.beat(ctx)
}

// transaction is one that may wait for Redis.
type transaction struct {
	tx    querier
	began time.Time
	// wrote is set where something may have been written to Redis.
	wrote bool
}

// redis is the context for calls to Redis within the transaction: they end soon
// after ctx, but not with it, since what was sent should be answered.
func (t *transaction) redis(ctx context.Context) (context.Context, context.CancelFunc) {
	t.wrote = true
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
// Redis may be waited for. Where its end is in doubt after something may have been
// written to Redis, the registry says so.
func (r *Relay) transact(ctx context.Context, known evidence, work func(ctx context.Context, t *transaction) error) error {
	if time.Since(known.read) > startWithin {
		return errors.New("outbox transaction: the database is too slow to begin it")
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), redisPhase+commitTimeout)
	defer cancel()
	t := &transaction{began: time.Now()}
	tx, err := r.db.begin(ctx)
	if err != nil {
		return err
	}
	t.tx = tx
	defer func() {
		_ = tx.Rollback() // Nothing, where it was committed.
	}()
	if err = work(ctx, t); err == nil {
		err = tx.Commit()
	}
	if err != nil {
		if t.wrote {
			r.registry.unclean()
		}
		return fmt.Errorf("outbox transaction: %w", err)
	}
	return nil
}
