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
	// idleLane is the shortest interval between looks of all lanes but the first, which wakes them
	// if there is more than one batch.
	idleLane = 2 * time.Second
	// waitingAgain is how soon a full look follows if rows had to wait.
	waitingAgain = 5 * time.Second
	// readWithin is how old a reading of Redis' clock may be when a batch begins.
	readWithin = startWithin / 2
	// narrower is by how much a batch is smaller after a conflict. Each batch that succeeds lets the
	// next one have twice as much.
	narrower = 10
)

// action is what a lane is to do: take the batch of a step to Redis, or else look at the table,
// or else sleep. It is a record.
type action struct {
	step    *step   // then took
	outlook outlook // that the batch begins with
	view    *view   // then looked, or timedOut
	// A round has ended: if there is more to take, the other lanes are woken. It has failed: the
	// state of database and Redis is unknown.
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

// lane is the machine that works on one batch at a time, of one queue after the other: it takes
// events and returns the next action. Its diagram is in doc.go.
//
// Whatever fails, three things hold. Except for the first batch of a round, none begins on a time
// of Redis that was read more than readWithin ago. Every row that can be stored is taken in time, by
// this lane or, if only a slow look finds it, by another. With nothing to do, it rests.
type lane struct {
	first   bool
	poll    time.Duration
	batch   int
	names   []string                       // of queues
	courses map[string]map[bool]*[2]course // by queue, and whether they are of operations: through new rows, and through all
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
		first: number == 0, poll: c.Poll, batch: c.Batch, names: names, turn: number, pause: outbox.NewBackoff(), courses: map[string]map[bool]*[2]course{},
		sight: sight{leaves: number == 0 && c.Lanes > 1, cheap: c.cheapLook, shared: shared},
	}
	for _, name := range names {
		l.courses[name] = map[bool]*[2]course{true: {newCourse(c.Batch), newCourse(c.Batch)}, false: {newCourse(c.Batch), newCourse(c.Batch)}}
	}
	return l
}

// next is what to do now.
//
//	it has failed | it has looked | batches are left | its clock is old | one was taken | there is more → do
//	yes           | *             | *                | *                | *             | *             → back off
//	no            | no            | *                | *                | *             | *             → look
//	no            | yes           | yes              | yes              | yes           | *             → wake the others
//	no            | yes           | yes              | *                | *             | *             → take a batch
//	no            | yes           | no               | *                | *             | yes           → wake the others
//	no            | yes           | no               | *                | *             | no            → rest
func (l *lane) next(now time.Time) action {
	isLate := l.isBegun && len(l.steps) > 0 && now.Sub(l.outlook.read) > readWithin // The previous batches took long: look again before the next.
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

// anew begins a new round.
func (l *lane) anew() { l.view, l.steps, l.isBegun, l.more, l.backOff = nil, nil, false, false, 0 }

// idle is how long to pause if nothing was found. Full looks come in time however long it is.
func (l *lane) idle(now time.Time) time.Duration {
	pause := l.sight.pause(l.poll, now)
	if l.first {
		return pause
	}
	return max(idleLane, pause)
}

// looked takes the result of a look and how long it took: the pending rows of each queue, the time
// that batches begin with, and, unless it was a cheap full look, the highest number of a row.
// Queues come in turn.
func (l *lane) looked(now time.Time, took time.Duration, found map[string]table.PendingWork, there table.Floor, o outlook) {
	if !l.view.whole || l.sight.looked(now, took) && !l.sight.isSlow() {
		l.sight.note(now, there)
	}
	l.outlook, l.turn = o, l.turn+1
	for i := range l.names {
		name := l.names[(l.turn+i)%len(l.names)]
		l.plan(now, name, found[name])
	}
}

// timedOut records that a full look timed out.
func (l *lane) timedOut(now time.Time, took time.Duration, there table.Floor) {
	l.sight.gaveUp()
	l.looked(now, took, nil, there, outlook{})
	l.backOff = l.pause.Next()
}

// plan adds the batches of a queue. New rows come first, since going through all rows may take
// long.
func (l *lane) plan(now time.Time, queue string, waits table.PendingWork) {
	for _, kind := range []struct {
		operations bool
		numbers    []int64
		some       bool
	}{{true, waits.NewOperations, waits.Operations}, {false, waits.NewHeads, waits.Heads}} {
		courses := l.courses[queue][kind.operations]
		fresh, all := &courses[0], &courses[1]
		work := table.Work{Queue: queue, UntilMs: l.outlook.untilMs()}
		work.Operations = waits.Operations || !l.view.whole // A look for new rows does not show older ones.
		if len(kind.numbers) > 0 && fresh.isReady(now) {
			of := work
			of.Numbers, of.Most = fresh.behind(kind.numbers), fresh.most
			l.steps = append(l.steps, &step{course: fresh, operations: kind.operations, work: of})
		}
		underWay := !l.view.whole && all.after != table.Cursor{}
		if (kind.some || underWay) && all.isReady(now) {
			work.Most = all.most
			work.After = cmp.Or(all.after, waits.First) // It need not walk again to where the look has ended.
			l.steps = append(l.steps, &step{all, kind.operations, l.sight.isSlow(), work})
		}
	}
}

// took takes the outcome of a batch.
func (l *lane) took(now time.Time, s *step, o outcome) {
	if o.waiting+o.blocked > 0 {
		l.sight.hurry(now.Add(waitingAgain))
	}
	s.course.widen(l.batch)
	l.more = s.course.note(now, o, s.onward) || l.more
}

// failed ends the round, because what is left is unknown. After a conflict with producers of the
// same ids the next round begins at once: Redis repeats its answers. Its batch is smaller, since
// one row that waits for a transaction which stays open must not hold up the others.
func (l *lane) failed(s *step, err error) {
	if !errors.Is(err, context.DeadlineExceeded) {
		l.sight.reset()
	}
	l.anew()
	switch {
	case !table.IsDeadlock(err):
		l.backOff = l.pause.Next()
	case s != nil:
		s.course.narrow()
	}
}

// course is a lane's position among the pending rows of a queue. It starts with the rows due
// first as long as rows leave. If some had to wait, the next batch continues where the last one
// ended, so that rows that cannot be stored do not hold up those behind them; after the last row
// it starts over. If it has met more blocked rows than it can track, it first rests as long as each
// blocked row does.
type course struct {
	pause  wait.Backoff
	until  time.Time // it rests until then
	after  table.Cursor
	most   int  // rows of a batch
	crowds bool // since the start it has met more blocked rows than it can track
}

func newCourse(most int) course { return course{pause: outbox.NewBackoff(), most: most} }

// narrow makes the next batches smaller, and widen larger again, up to most.
func (c *course) narrow()        { c.most = max(1, c.most/narrower) }
func (c *course) widen(most int) { c.most = min(most, 2*c.most) }

func (c *course) isReady(now time.Time) bool { return !now.Before(c.until) }

// outcome is the result of a batch. It is a record.
type outcome struct {
	settled, waiting int
	blocked          int  // rows that wait for another message of their id
	crowded          bool // they are more than can be tracked
	last             table.Cursor
	full             bool // more rows may be behind last
}

// behind are the numbers behind the last batch, or all if there are none.
func (c *course) behind(numbers []int64) []int64 {
	i, _ := slices.BinarySearch(numbers, c.after.Number+1)
	if i == len(numbers) {
		return numbers
	}
	return numbers[i:]
}

// note records a batch, and reports whether another may follow at once. With onward, the next one
// always continues behind it, because the way there is long.
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
