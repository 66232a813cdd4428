package relay

import (
	"cmp"
	"context"
	"errors"
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
	// waitingAgain is how soon everything is looked at again where rows had to wait.
	waitingAgain = 5 * time.Second
	// readWithin is how old what was read of Redis' clock may be when something new begins.
	readWithin = startWithin / 2
)

// action is what a lane is to do: take the batch of a step to Redis, or else look at the table,
// or else sleep. It is a record.
type action struct {
	step    *step   // then took
	outlook outlook // that the batch begins with
	view    *view   // then looked, or timedOut
	// A round has ended: where there is more to take, the others are woken instead. It has failed:
	// nothing is known of database and Redis.
	more, failed bool
	pause        time.Duration
}

// step is a batch that may be taken now. It is a record.
type step struct {
	course     *course
	operations bool // else messages
	onward     bool // it is part of a long way through everything
	work       table.Work
}

// lane works on one batch at a time, of one queue after the other, as a machine: it is told
// what has happened, and says what to do next. Its diagram is in doc.go.
//
// Whatever fails: but for the first of a round nothing begins on a time of Redis that was read
// longer than readWithin before; all that can be stored is taken in time, by this lane or, where
// only a slow look finds it, by another; and where nothing is to be had, it rests.
type lane struct {
	first   bool
	poll    time.Duration
	names   []string                       // of queues
	courses map[string]map[bool]*[2]course // by queue, and whether they are of operations: through what is new, and through all
	turn    int                            // which queue is next
	sight   sight
	pause   wait.Backoff

	// Of a round: there was a look, and which; steps are left, or there are more at once.
	view    *view
	outlook outlook
	steps   []*step
	isBegun bool // a batch was taken
	more    bool
	backOff time.Duration // after a failure
}

func newLane(c *Config, names []string, number int, shared *lookout) *lane {
	l := &lane{
		first: number == 0, poll: c.Poll, names: names, turn: number, pause: outbox.NewBackoff(), courses: map[string]map[bool]*[2]course{},
		sight: sight{leaves: number == 0 && c.Lanes > 1, cheap: c.cheapLook, shared: shared},
	}
	for _, name := range names {
		l.courses[name] = map[bool]*[2]course{true: {newCourse(), newCourse()}, false: {newCourse(), newCourse()}}
	}
	return l
}

// next is what to do now.
func (l *lane) next(now time.Time) action {
	isLate := l.isBegun && len(l.steps) > 0 && now.Sub(l.outlook.read) > readWithin // Others took long: look again before the next.
	switch {
	case l.backOff > 0:
		rest := action{pause: l.backOff, failed: true}
		l.anew()
		return rest
	case l.view == nil:
		l.view = l.sight.next(now)
		return action{view: l.view}
	case len(l.steps) > 0 && !isLate:
		s := l.steps[0]
		l.steps, l.isBegun = l.steps[1:], true
		return action{step: s, outlook: l.outlook}
	}
	rest := action{more: l.more || isLate}
	if !rest.more {
		rest.pause = l.idle(now)
	}
	l.pause.Reset()
	l.anew()
	return rest
}

// anew begins a round.
func (l *lane) anew() { l.view, l.steps, l.isBegun, l.more, l.backOff = nil, nil, false, false, 0 }

// idle is how long to pause where nothing was found. However long that is, somebody
// looks at everything in time.
func (l *lane) idle(now time.Time) time.Duration {
	pause := l.sight.pause(l.poll, now)
	if l.first {
		return pause
	}
	return max(idleLane, pause)
}

// looked takes what a look has found that took so long: the rows that each queue has pending. For
// what was looked for Redis' time is told, and the highest number that there is, unless all was
// looked at and that was cheap; and the time that batches begin with. Queues come in turn.
func (l *lane) looked(now time.Time, took time.Duration, found map[string]table.Waiting, there table.Floor, o outlook) {
	if !l.view.whole || l.sight.looked(now, took) && !l.sight.isSlow() {
		l.sight.note(now, there)
	}
	l.outlook, l.turn = o, l.turn+1
	for i := range l.names {
		name := l.names[(l.turn+i)%len(l.names)]
		l.plan(now, name, found[name])
	}
}

// timedOut says that a look at everything has not ended in time.
func (l *lane) timedOut(now time.Time, took time.Duration, there table.Floor) {
	l.sight.gaveUp()
	l.looked(now, took, nil, there, outlook{})
	l.backOff = l.pause.Next()
}

// plan adds the batches of a queue. What is new comes first, since a way through
// everything may be long.
func (l *lane) plan(now time.Time, queue string, waits table.Waiting) {
	for _, kind := range []struct {
		operations bool
		numbers    []int64
		some       bool
	}{{true, waits.NewOperations, waits.Operations}, {false, waits.NewHeads, waits.Heads}} {
		courses := l.courses[queue][kind.operations]
		fresh, all := &courses[0], &courses[1]
		work := table.Work{Queue: queue, UntilMs: l.outlook.untilMs()}
		work.Operations = waits.Operations || !l.view.whole // Of those from before nothing is known then.
		if len(kind.numbers) > 0 && fresh.isReady(now) {
			of := work
			of.Numbers = fresh.behind(kind.numbers)
			l.steps = append(l.steps, &step{course: fresh, operations: kind.operations, work: of})
		}
		underWay := !l.view.whole && all.after != table.Cursor{}
		if (kind.some || underWay) && all.isReady(now) {
			work.After = cmp.Or(all.after, waits.First) // It need not walk again to where the look has ended.
			l.steps = append(l.steps, &step{all, kind.operations, l.sight.isSlow(), work})
		}
	}
}

// took takes how a batch went.
func (l *lane) took(now time.Time, s *step, o outcome) {
	if o.waiting+o.blocked > 0 {
		l.sight.hurry(now.Add(waitingAgain))
	}
	l.more = s.course.note(now, o, s.onward) || l.more
}

// failed ends the round: nobody knows what is left. Where producers of the same ids were in
// between, the next begins at once: what Redis has done it will say again.
func (l *lane) failed(err error) {
	if !errors.Is(err, context.DeadlineExceeded) {
		l.sight.reset()
	}
	l.anew()
	if !table.IsDeadlock(err) {
		l.backOff = l.pause.Next()
	}
}

// course is how a lane goes through the pending rows of a queue. It begins with
// what is due first, as long as rows leave. Where some had to wait, the next batch
// goes on where the last one ended, so that rows that cannot be stored do not keep
// those behind them waiting; at the end it returns to the beginning. Where it has met
// more rows that another message is in the way of than are told apart, it rests before, for
// as long as each of those does.
type course struct {
	pause  wait.Backoff
	until  time.Time // it rests until then
	after  table.Cursor
	crowds bool // since the beginning it has met more blocked rows than are told apart
}

func newCourse() course { return course{pause: outbox.NewBackoff()} }

func (c *course) isReady(now time.Time) bool { return !now.Before(c.until) }

// outcome is how a batch went. It is a record.
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
func (c *course) note(now time.Time, o outcome, onward bool) (more bool) {
	if o.waiting > 0 && o.settled == 0 {
		c.until = now.Add(c.pause.Next())
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
		if rest := now.Add(blockedPause); rest.After(c.until) {
			c.until = rest
		}
	}
	return o.full && c.isReady(now)
}
