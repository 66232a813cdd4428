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

// driver does what a lane says: it has the clock, sleeps, and asks database and Redis.
type driver struct {
	*Relay
	lane *lane
}

func (r *Relay) driver(number int) *driver {
	return &driver{r, newLane(&r.config, r.names, number, &r.lookout)}
}

// run works until ctx ends. It returns nil: every failure is waited out.
func (d *driver) run(ctx context.Context) error {
	for ctx.Err() == nil {
		switch a := d.lane.next(time.Now()); a.kind {
		case actionRest:
			d.outages.redis.Observe(ctx, nil)
			d.outages.database.Observe(ctx, nil)
			if a.more {
				d.Wake()
				continue
			}
			fallthrough
		case actionBackOff:
			wait.SleepOrWake(ctx, a.pause, d.wake)
		default:
			if err := d.do(ctx, a); err != nil {
				d.tell(ctx, err)
				d.lane.failed(err)
			}
		}
	}
	return nil
}

// do asks database and Redis. It survives a panic.
func (d *driver) do(ctx context.Context, a action) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v", cause)
			d.log.ErrorContext(ctx, "outbox relay panicked", "event", "outbox_panic", "err", err)
		}
	}()
	switch a.kind {
	case actionClock:
		o, err := d.outlook(ctx)
		if err == nil {
			d.lane.clocked(o)
		}
		return err
	case actionMark:
		number, err := d.db.Pending().Last(ctx)
		if err == nil {
			d.lane.marked(number)
		}
		return err
	case actionTake:
		o, err := d.take(ctx, a.outlook, a.step)
		if err == nil {
			d.lane.took(time.Now(), a.step, o)
		}
		return err
	default:
		return d.look(ctx, a.outlook, a.view)
	}
}

// look asks what there is to do: of everything, or of what is new.
func (d *driver) look(ctx context.Context, o outlook, v view) (err error) {
	var found map[string]table.Waiting
	var newest int64
	if v.whole {
		found, err = d.db.Pending().Look(ctx, d.names, o.untilMs(), v.within)
	} else {
		found, newest, err = d.db.Pending().New(ctx, d.names, v.floor, o.untilMs())
	}
	switch {
	case err == nil:
		d.lane.looked(time.Now(), found, newest)
	case v.whole && errors.Is(err, context.DeadlineExceeded):
		d.tell(ctx, err)
		d.lane.timedOut(time.Now())
		return nil
	}
	return err
}

// tell says what is away.
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

// take takes a batch of a queue to Redis. Of operations that a producer may still change it is
// noted first that he may not.
func (r *Relay) take(ctx context.Context, o outlook, s step) (out outcome, err error) {
	noted := true
	for note := true; noted && err == nil; note = false {
		out, noted, err = r.takeOnce(ctx, o, s, note)
	}
	return out, err
}

func (r *Relay) takeOnce(ctx context.Context, o outlook, s step, note bool) (out outcome, noted bool, err error) {
	work, away := s.work, r.outages.queues[s.work.Queue]
	if s.operations {
		away = r.outages.operations[work.Queue]
	}
	b, err := r.batch(ctx, o, work.Queue)
	if err != nil { // Redis is away for that queue: it rests.
		away.Observe(ctx, err)
		return outcome{waiting: 1}, false, nil
	}
	work.Blocked, work.Most = r.blocked.list(time.Now(), work.Queue), r.config.Batch
	err = r.transact(ctx, o, func(ctx, redis context.Context, t *table.Tx) (err error) {
		if s.operations {
			out, noted, err = b.operate(ctx, redis, t, work, note)
		} else {
			out, err = b.load(ctx, redis, t, work)
		}
		return err
	})
	switch {
	case errors.Is(err, outbox.ErrOtherRedis): // The queue rests, and it is looked at once whether it was ours that was emptied.
		away.Observe(ctx, err)
		select {
		case r.disowned <- struct{}{}:
		default: // It is about to look.
		}
		return outcome{waiting: 1}, false, nil
	case err != nil:
		b.restLiving(ctx)
	case !noted:
		out.crowded = b.report(ctx, away)
	}
	return out, noted, err
}
