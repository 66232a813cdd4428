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

// actionKind is what a lane is to do.
type actionKind uint8

const (
	actionClock   actionKind = iota // read Redis' clock: clocked
	actionLook                      // look at the table as view says: looked, or timedOut
	actionMark                      // read the highest number: marked
	actionTake                      // take a batch to Redis: took
	actionRest                      // a round has ended: wake the others if there is more, else sleep
	actionBackOff                   // one has failed: sleep
)

// action is one, with what it takes. It is a record.
type action struct {
	kind    actionKind
	outlook outlook
	view    view
	step    step
	more    bool
	pause   time.Duration
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
// Whatever fails: nothing begins on a time of Redis that was read longer than readWithin
// before, but what comes right after it was read; all that can be stored is taken in time, by
// this lane or, where only a slow look finds it, by another; and where nothing is to be had, it
// rests.
type lane struct {
	first   bool
	poll    time.Duration
	names   []string // of queues
	courses map[string]*courses
	turn    int // which queue is next
	sight   sight
	pause   wait.Backoff

	outlook outlook
	fresh   bool      // nothing has begun since that was read
	view    view      // of the round's look
	began   time.Time // when that was made; zero: it was not yet
	number  bool      // the highest number is wanted
	steps   []step    // of the round that are left
	more    bool      // another batch may be had at once
	backOff time.Duration
}

func newLane(c *Config, names []string, number int, shared *lookout) *lane {
	l := &lane{
		first: number == 0, poll: c.Poll, names: names, turn: number, pause: outbox.NewBackoff(), courses: map[string]*courses{},
		sight: sight{leaves: number == 0 && c.Lanes > 1, cheap: c.cheapLook, shared: shared},
	}
	for _, name := range names {
		l.courses[name] = &courses{newCourse(), newCourse(), newCourse(), newCourse()}
	}
	return l
}

// next is what to do now.
func (l *lane) next(now time.Time) action {
	switch {
	case l.number:
		return action{kind: actionMark}
	case l.backOff > 0:
		pause := l.backOff
		l.anew()
		return action{kind: actionBackOff, pause: pause}
	case !l.fresh && now.Sub(l.outlook.read) > readWithin && (l.began.IsZero() || len(l.steps) > 0):
		return action{kind: actionClock}
	case l.began.IsZero():
		l.view, l.began, l.fresh = l.sight.next(now), now, false
		return action{kind: actionLook, outlook: l.outlook, view: l.view}
	case len(l.steps) > 0:
		s := l.steps[0]
		l.steps, l.fresh = l.steps[1:], false
		s.work.UntilMs = l.outlook.untilMs()
		return action{kind: actionTake, outlook: l.outlook, step: s}
	}
	rest := action{kind: actionRest, more: l.more}
	if !l.more {
		rest.pause = l.idle(now)
	}
	l.pause.Reset()
	l.anew()
	return rest
}

// anew begins a round: with Redis' time, and a look.
func (l *lane) anew() {
	l.outlook, l.began, l.number, l.steps, l.more, l.backOff = outlook{}, time.Time{}, false, nil, false, 0
}

// idle is how long to pause where nothing was found. However long that is, somebody
// looks at everything in time.
func (l *lane) idle(now time.Time) time.Duration {
	pause := l.sight.pause(l.poll, now)
	if l.first {
		return pause
	}
	return max(idleLane, pause)
}

// clocked takes the time of Redis.
func (l *lane) clocked(o outlook) { l.outlook, l.fresh = o, true }

// looked takes what a look has found: the rows that each queue has pending, and where it was
// for new ones, the highest number that there is. Queues come in turn.
func (l *lane) looked(now time.Time, found map[string]table.Waiting, newest int64) {
	if l.view.whole {
		l.number = l.sight.looked(now, now.Sub(l.began)) && !l.sight.isSlow()
	} else {
		l.sight.note(now, table.Floor{Number: newest, UntilMs: l.outlook.untilMs()})
	}
	l.turn++
	for i := range l.names {
		name := l.names[(l.turn+i)%len(l.names)]
		l.plan(now, name, found[name])
	}
}

// timedOut says that a look at everything has not ended in time.
func (l *lane) timedOut(now time.Time) {
	l.sight.gaveUp()
	l.looked(now, nil, 0)
	l.backOff = l.pause.Next()
}

// marked takes the highest number after a look that was slow for the first time.
func (l *lane) marked(number int64) {
	l.number = false
	l.sight.note(l.began, table.Floor{Number: number, UntilMs: l.outlook.untilMs()})
}

// plan adds the batches of a queue. What is new comes first, since a way through
// everything may be long.
func (l *lane) plan(now time.Time, queue string, waits table.Waiting) {
	c, whole := l.courses[queue], l.view.whole
	for _, kind := range []struct {
		operations bool
		fresh, all *course
		numbers    []int64
		some       bool
	}{
		{true, &c.newOperations, &c.operations, waits.NewOperations, waits.Operations},
		{false, &c.newHeads, &c.heads, waits.NewHeads, waits.Heads},
	} {
		s := step{operations: kind.operations, work: table.Work{Queue: queue}}
		s.work.Operations = waits.Operations || !whole // Of those from before nothing is known then.
		if len(kind.numbers) > 0 && kind.fresh.isReady(now) {
			fresh := s
			fresh.course, fresh.work.Numbers = kind.fresh, kind.fresh.behind(kind.numbers)
			l.steps = append(l.steps, fresh)
		}
		underWay := !whole && kind.all.after != table.Cursor{}
		if (kind.some || underWay) && kind.all.isReady(now) {
			// A batch need not walk again to where the look has ended.
			s.course, s.onward, s.work.After = kind.all, l.sight.isSlow() || l.number, cmp.Or(kind.all.after, waits.First)
			l.steps = append(l.steps, s)
		}
	}
}

// took takes how a batch went.
func (l *lane) took(now time.Time, s step, o outcome) {
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

// courses are those of a queue: through all pending rows, and through the new ones.
type courses struct{ newOperations, operations, newHeads, heads course }

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
