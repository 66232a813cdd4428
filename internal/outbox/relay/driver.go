package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// driver carries out a lane's actions: it has the clock, sleeps, and calls database and Redis.
type driver struct {
	*Relay
	lane *lane
}

func (r *Relay) driver(number int) *driver {
	return &driver{r, newLane(&r.config, r.served.Load().names, number, &r.lookout)}
}

// run works until ctx ends. It returns nil, because every failure is retried.
func (d *driver) run(ctx context.Context) error {
	for ctx.Err() == nil {
		a := d.lane.next(time.Now())
		switch {
		case a.step != nil || a.view != nil:
			if err := d.do(ctx, a); err != nil {
				d.tell(ctx, err)
				d.lane.failed(a.step, err)
			}
			continue
		case !a.failed:
			d.outages.redis.Observe(ctx, nil)
			d.outages.database.Observe(ctx, nil)
		}
		if a.more {
			d.Wake()
		} else {
			wait.SleepOrWake(ctx, a.pause, d.wake)
		}
	}
	return nil
}

// do takes a batch, or looks. It survives a panic.
func (d *driver) do(ctx context.Context, a action) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v", cause)
			d.log.ErrorContext(ctx, "outbox relay panicked", "event", "outbox_panic", "err", err)
		}
	}()
	if a.step == nil {
		return d.look(ctx, a.view)
	}
	o, err := d.take(ctx, a.outlook, a.step)
	if err == nil {
		d.lane.took(time.Now(), a.step, o)
	}
	return err
}

// look finds pending rows, by a full look or among new rows.
func (d *driver) look(ctx context.Context, v *view) error {
	o, err := d.outlook(ctx)
	if err != nil {
		return err
	}
	pending, there, began := d.db.Pending(), table.Floor{UntilMs: o.untilMs()}, time.Now()
	if !v.whole {
		var found map[string]table.PendingWork
		if found, there.Number, err = pending.New(ctx, d.served.Load().names, v.floor, there.UntilMs); err == nil {
			d.lane.looked(time.Now(), time.Since(began), found, there, o)
		}
		return err
	}
	found, err := pending.Look(ctx, d.served.Load().names, there.UntilMs, v.within)
	now, isLate := time.Now(), errors.Is(err, context.DeadlineExceeded)
	took := now.Sub(began)
	if err != nil && !isLate {
		return err
	}
	if took > d.config.cheapLook {
		number, failure := pending.Last(ctx)
		if there.Number = number; failure == nil && !isLate {
			o, failure = d.outlook(ctx) // It may have grown too old for a transaction.
		}
		if failure != nil {
			return errors.Join(err, failure)
		}
	}
	if isLate {
		d.tell(ctx, err)
		d.lane.timedOut(now, took, there)
	} else {
		d.lane.looked(now, took, found, there, o)
	}
	return nil
}

// tell reports what is away.
func (d *driver) tell(ctx context.Context, err error) {
	switch {
	case errors.Is(err, errRedis):
		d.outages.redis.Observe(ctx, err)
	case table.IsDeadlock(err):
		d.log.DebugContext(ctx, "outbox transaction gave way", "event", "outbox_deadlock", "err", err)
	default:
		d.outages.redis.Observe(ctx, nil)
		d.outages.database.Observe(ctx, err)
		d.db.Heed(err)
	}
}

// take takes a batch of a queue to Redis. For operations that a producer may still change, it
// first notes that this is over.
func (r *Relay) take(ctx context.Context, o outlook, s *step) (out outcome, err error) {
	noted := true
	for note := true; noted && err == nil; note = false {
		out, noted, err = r.takeOnce(ctx, o, s, note)
	}
	return out, err
}

func (r *Relay) takeOnce(ctx context.Context, o outlook, s *step, note bool) (out outcome, noted bool, err error) {
	work, queue := s.work, r.served.Load().queues[s.work.Queue]
	away := queue.messages
	if s.operations {
		away = queue.operations
	}
	b, err := r.batch(ctx, o, queue)
	if err != nil { // Redis is unavailable for that queue, which rests.
		away.Observe(ctx, err)
		return outcome{waiting: 1}, false, nil
	}
	work.Blocked = r.blocked.list(time.Now(), work.Queue)
	err = r.transact(ctx, o, func(ctx, redis context.Context, t *table.Tx) (err error) {
		if s.operations {
			out, noted, err = b.operate(ctx, redis, t, work, note)
		} else {
			out, err = b.load(ctx, redis, t, work)
		}
		return err
	})
	switch {
	case errors.Is(err, outbox.ErrOtherRedis): // The queue rests, and lives checks at once whether our Redis was emptied.
		away.Observe(ctx, err)
		wait.Wake(r.disowned)
		return outcome{waiting: 1}, false, nil
	case err != nil:
		b.rest(ctx, work.Most == 1 && table.IsDeadlock(err))
	case !noted:
		out.crowded = b.report(ctx, away)
	}
	return out, noted, err
}
