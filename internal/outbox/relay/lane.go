package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

const (
	// idleLane is how often the lanes but the first look at the most: it wakes them when
	// there is more than one batch.
	idleLane = 2 * time.Second
	// clockTimeout limits asking Redis for the time.
	clockTimeout = 5 * time.Second
	// waitingAgain is how soon everything is looked at again where rows had to wait.
	waitingAgain = 5 * time.Second
)

// lane works on one batch at a time, of one queue after the other.
type lane struct {
	relay *Relay
	first bool
	pause wait.Backoff
	turn  int // which queue is next
	sight sight
	// By queue.
	courses map[string]*courses
}

func newLane(r *Relay, number int) *lane {
	l := &lane{relay: r, first: number == 0, pause: outbox.NewBackoff(), turn: number, courses: map[string]*courses{}}
	l.sight.shared, l.sight.leaves = &r.lookout, l.first && r.config.Lanes > 1
	for _, name := range r.names {
		l.courses[name] = &courses{newCourse(), newCourse(), newCourse(), newCourse()}
	}
	return l
}

// run works until ctx ends. It returns nil: every failure is waited out.
func (l *lane) run(ctx context.Context) error {
	for {
		more, err := l.guardedRound(ctx)
		var pause time.Duration
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
			pause = l.idle(time.Now())
		}
		if !wait.SleepOrWake(ctx, pause, l.relay.wake) {
			return nil
		}
	}
}

// idle is how long to pause where nothing was found. However long that is, somebody
// looks at everything in time.
func (l *lane) idle(now time.Time) time.Duration {
	pause := l.sight.pause(l.relay.config.Poll, now)
	if l.first {
		return pause
	}
	return max(idleLane, pause)
}

// guardedRound survives a panic, and says what is away.
func (l *lane) guardedRound(ctx context.Context) (more bool, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v", cause)
			l.relay.log.ErrorContext(ctx, "outbox relay panicked", "event", "outbox_panic", "err", err)
		}
	}()
	if more, err = l.round(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		l.sight.reset() // Nobody knows what is left.
	}
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
	look, err := l.look(ctx)
	if err != nil {
		return false, err
	}
	l.turn++
	for i := range l.relay.names {
		name := l.relay.names[(l.turn+i)%len(l.relay.names)]
		for _, s := range l.steps(look, name) {
			if ctx.Err() != nil {
				return false, ctx.Err()
			}
			o, err := s.take(ctx, look, s.work)
			if err != nil {
				return false, err
			}
			if o.waiting+o.blocked > 0 {
				l.sight.hurry(time.Now().Add(waitingAgain))
			}
			more = s.course.note(o, s.onward) || more
		}
		if time.Since(look.read) > startWithin/2 {
			return true, nil // Others took long: look again before the next.
		}
	}
	return more, nil
}

// look asks what there is to do: of everything, or of what is new.
func (l *lane) look(ctx context.Context) (look outlook, err error) {
	if look, err = l.relay.outlook(ctx); err != nil {
		return look, err
	}
	now := time.Now()
	if l.sight.isWhole(now) {
		return l.lookAtAll(ctx, look)
	}
	there := table.Floor{UntilMs: look.untilMs()}
	look.queues, there.Number, err = l.relay.db.Pending().New(ctx, l.relay.names, l.sight.floor(now), there.UntilMs)
	if err == nil {
		l.sight.note(now, there)
	}
	return look, err
}

func (l *lane) lookAtAll(ctx context.Context, look outlook) (outlook, error) {
	pending, began := l.relay.db.Pending(), time.Now()
	queues, err := pending.Look(ctx, l.relay.names, look.untilMs(), l.sight.within())
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		l.sight.gaveUp()
	case err != nil:
		return look, err
	}
	if l.sight.looked(time.Now(), time.Since(began), l.relay.config.cheapLook) {
		if !l.sight.isSlow() {
			number, failure := pending.Last(ctx)
			if failure != nil {
				return look, errors.Join(err, failure)
			}
			l.sight.note(began, table.Floor{Number: number, UntilMs: look.untilMs()})
		}
		if err != nil {
			return look, err
		}
		look, err = l.relay.outlook(ctx) // It may have grown too old for a transaction.
	}
	look.queues, look.whole = queues, true
	return look, err
}

// step is a batch that may be taken now.
type step struct {
	course *course
	take   taker
	work   table.Work
	onward bool // it is part of a long way through everything
}

// taker takes a batch to Redis.
type taker func(context.Context, outlook, table.Work) (outcome, error)

// steps are the batches of a queue. What is new comes first, since a way through
// everything may be long.
func (l *lane) steps(look outlook, queue string) (steps []step) {
	waits, c := look.queues[queue], l.courses[queue]
	work := table.Work{Queue: queue, UntilMs: look.untilMs()}
	work.Operations = waits.Operations || !look.whole // Of those from before nothing is known then.
	fresh := func(c *course, take taker, numbers []int64) {
		if len(numbers) > 0 && c.isReady() {
			work.Numbers = c.behind(numbers)
			steps = append(steps, step{c, take, work, false})
		}
	}
	all := func(c *course, take taker, some bool) {
		underWay := !look.whole && c.after != table.Cursor{}
		if (some || underWay) && c.isReady() {
			// A batch need not walk again to where the look has ended.
			work.Numbers, work.After = nil, cmp.Or(c.after, waits.First)
			steps = append(steps, step{c, take, work, l.sight.isSlow()})
		}
	}
	fresh(&c.newOperations, l.operate, waits.NewOperations)
	all(&c.operations, l.operate, waits.Operations)
	fresh(&c.newHeads, l.load, waits.NewHeads)
	all(&c.heads, l.load, waits.Heads)
	return steps
}

// unpinned is how a batch went that could not be begun, since Redis is away for that
// queue: it rests.
func (l *lane) unpinned(ctx context.Context, queue string, outages map[string]*outbox.Outage, err error) (outcome, error) {
	outages[queue].Observe(ctx, err)
	return outcome{waiting: 1}, nil
}

// courses are those of a queue: through all pending rows, and through the new ones.
type courses struct{ newOperations, operations, newHeads, heads course }

// course is how a lane goes through the pending rows of a queue. It begins with
// what is due first, as long as rows leave. Where some had to wait, the next batch
// goes on where the last one ended, so that rows that cannot be stored do not keep
// those behind them waiting; at the end it returns to the beginning. Where it has met
// more rows that another message is in the way of than are told apart, it rests before, for
// as long as each of those does. It belongs to one goroutine.
type course struct {
	pause  wait.Backoff
	until  time.Time // it rests until then
	after  table.Cursor
	crowds bool // since the beginning it has met more blocked rows than are told apart
}

func newCourse() course { return course{pause: outbox.NewBackoff()} }

func (c *course) isReady() bool { return !time.Now().Before(c.until) }

// outcome is how a batch went.
type outcome struct {
	settled, waiting int
	blocked          int  // rows that another message is in the way of
	crowded          bool // they are more than are told apart
	last             table.Cursor
	full             bool // more rows may be behind last
}

// behind are the numbers behind the last batch, or all where there are none.
func (c *course) behind(numbers []int64) []int64 {
	i, _ := slices.BinarySearch(numbers, c.after.Number+1)
	if i == len(numbers) {
		return numbers
	}
	return numbers[i:]
}

// note records a batch, and reports whether another may be had at once. Onward, the
// next one goes on behind it in any case: the way there is long.
func (c *course) note(o outcome, onward bool) (more bool) {
	if o.waiting > 0 && o.settled == 0 {
		c.until = time.Now().Add(c.pause.Next())
	} else {
		c.pause.Reset()
	}
	going := onward || o.waiting+o.blocked > 0 || c.after != (table.Cursor{})
	c.after, c.crowds = table.Cursor{}, c.crowds || o.crowded
	switch {
	case going && o.full:
		c.after = o.last
	case c.crowds:
		c.crowds = false
		if rest := time.Now().Add(blockedPause); rest.After(c.until) {
			c.until = rest
		}
	}
	return o.full && c.isReady()
}
