package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
	"github.com/delaybridge/delaybridge/internal/wait"
)

const (
	// idleLane is how often the lanes but the first look: it wakes them when there
	// is more than one batch.
	idleLane = 2 * time.Second
	// clockTimeout limits asking Redis for the time.
	clockTimeout = 5 * time.Second
)

// lane works on one batch at a time, of one queue after the other.
type lane struct {
	relay *Relay
	first bool
	pause wait.Backoff
	turn  int // which queue is next
	heads map[string]*course
	ops   map[string]*course
}

func newLane(r *Relay, number int) *lane {
	l := &lane{relay: r, first: number == 0, pause: outbox.NewBackoff(), turn: number, heads: map[string]*course{}, ops: map[string]*course{}}
	for _, name := range r.names {
		l.heads[name], l.ops[name] = &course{pause: outbox.NewBackoff()}, &course{pause: outbox.NewBackoff()}
	}
	return l
}

// run works until ctx ends. It returns nil: every failure is waited out.
func (l *lane) run(ctx context.Context) error {
	for {
		more, err := l.guardedRound(ctx)
		pause := l.relay.config.Poll
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // What fails at the end says nothing.
		case err != nil:
			pause = l.pause.Next()
		case more:
			l.pause.Reset()
			l.relay.Wake()
			continue
		default:
			l.pause.Reset()
			if !l.first {
				pause = max(idleLane, pause)
			}
		}
		if !wait.SleepOrWake(ctx, pause, l.relay.wake) {
			return nil
		}
	}
}

// guardedRound survives a panic, and says what is away.
func (l *lane) guardedRound(ctx context.Context) (more bool, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v", cause)
			l.relay.log.ErrorContext(ctx, "outbox relay panicked", "event", "outbox_panic", "err", err)
		}
	}()
	more, err = l.round(ctx)
	switch {
	case errors.Is(err, errRedis):
		l.relay.outages.redis.Observe(ctx, err)
	case table.IsDeadlock(err):
		// Producers of the same ids were in between. What Redis has done it will say
		// again.
		l.relay.log.DebugContext(ctx, "outbox transaction gave way", "event", "outbox_deadlock", "err", err)
		return true, nil
	default:
		l.relay.outages.redis.Observe(ctx, nil)
		l.relay.outages.database.Observe(ctx, err)
		l.relay.db.Heed(err)
	}
	return more, err
}

// round works on one batch of operations and one of messages of each queue that
// has some; more says that another may be had at once.
func (l *lane) round(ctx context.Context) (more bool, err error) {
	look, err := l.relay.outlook(ctx)
	if err != nil {
		return false, err
	}
	if look.queues, err = l.relay.db.Pending().Look(ctx, l.relay.names, look.untilMs()); err != nil {
		return false, err
	}
	l.turn++
	for i := range l.relay.names {
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		name := l.relay.names[(l.turn+i)%len(l.relay.names)]
		waits := look.queues[name]
		if ops := l.ops[name]; waits.Operations && ops.isReady() {
			o, err := l.operate(ctx, look, name, ops.after)
			if err != nil {
				return false, err
			}
			more = ops.note(o) || more
		}
		if heads := l.heads[name]; waits.Heads && heads.isReady() {
			o, err := l.load(ctx, look, name, heads.after)
			if err != nil {
				return false, err
			}
			more = heads.note(o) || more
		}
		if time.Since(look.read) > startWithin/2 {
			return true, nil // Others took long: look again before the next.
		}
	}
	return more, nil
}

// unpinned is how a batch went that could not be begun, since Redis is away for that
// queue: it rests.
func (l *lane) unpinned(ctx context.Context, queue string, outages map[string]*outbox.Outage, err error) (outcome, error) {
	outages[queue].Observe(ctx, err)
	return outcome{waiting: 1}, nil
}

// course is how a lane goes through the pending rows of a queue. It begins with
// what is due first, as long as rows leave. Where some had to wait, the next batch
// goes on where the last one ended, so that rows that cannot be stored do not keep
// those behind them waiting; at the end it returns to the beginning. It belongs to
// one goroutine.
type course struct {
	pause wait.Backoff
	until time.Time // it rests until then
	after table.Cursor
}

func (c *course) isReady() bool { return !time.Now().Before(c.until) }

// outcome is how a batch went.
type outcome struct {
	settled, waiting int
	last             table.Cursor
	full             bool // more rows may be behind last
}

// note records a batch, and reports whether another may be had at once.
func (c *course) note(o outcome) (more bool) {
	if o.waiting > 0 && o.settled == 0 {
		c.until = time.Now().Add(c.pause.Next())
	} else {
		c.pause.Reset()
	}
	going := o.waiting > 0 || c.after != (table.Cursor{})
	c.after = table.Cursor{}
	if going && o.full {
		c.after = o.last
	}
	return o.full && c.isReady()
}
