package relay

import (
	"slices"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

const (
	// defaultCheapLook is how long a look at everything may take that is made each time.
	defaultCheapLook = 10 * time.Millisecond
	// longestRest is the longest time between two of them.
	longestRest = 30 * time.Second
	// lateAfter is how long after its row got its number a transaction has committed, as
	// a rule. One that takes longer waits for the next look at everything.
	lateAfter = 3 * time.Second
	// markEvery is how often the floor may move.
	markEvery = 500 * time.Millisecond
)

// sight decides how a lane looks for pending rows.
//
// A look at everything is the truth, and walks over whatever the database has not yet
// forgotten: while somebody holds a snapshot, that is all that was relayed since then.
// So it is made each time only while it is cheap. Otherwise it takes a small part of the
// time, and the looks in between ask for what is new: what is above the floor, which is
// what was there some seconds ago.
//
// The zero value looks at everything. It belongs to one goroutine.
type sight struct {
	rest  time.Duration // the least time between two slow looks at everything, but the first two
	next  time.Time     // when to look at everything again
	marks []mark        // what was there, the oldest first; none: everything is looked at
}

// mark is what was there at an instant.
type mark struct {
	at    time.Time
	floor table.Floor
}

func (s *sight) isWhole(now time.Time) bool { return len(s.marks) == 0 || !now.Before(s.next) }

// isSlow reports whether not every look is one at everything.
func (s *sight) isSlow() bool { return len(s.marks) > 0 }

// looked notes a look at everything, and reports whether it was slow. Where that is
// new, the caller notes a first floor. What was committed beside that look may be below it,
// so the next one comes soon, whatever other lanes do.
func (s *sight) looked(now time.Time, took, cheap time.Duration) (slow bool) {
	if took <= cheap {
		s.reset()
		return false
	}
	rest := wait.Rest(took)
	if s.isSlow() {
		rest = max(rest, s.rest)
	}
	s.next = now.Add(min(rest, longestRest))
	return true
}

// within is how long to pause at the most until everything is looked at again.
func (s *sight) within(pause time.Duration, now time.Time) time.Duration {
	if !s.isSlow() {
		return pause
	}
	return max(0, min(pause, s.next.Sub(now)))
}

// reset begins anew, with a look at everything.
func (s *sight) reset() { s.next, s.marks = time.Time{}, nil }

// hurry has everything be looked at by then.
func (s *sight) hurry(by time.Time) {
	if by.Before(s.next) {
		s.next = by
	}
}

// note tells what is there now. It becomes the floor when it is old enough.
func (s *sight) note(now time.Time, there table.Floor) {
	if n := len(s.marks); n == 0 || now.Sub(s.marks[n-1].at) >= markEvery {
		s.marks = append(s.marks, mark{now, there})
	}
}

// floor is where a look at what is new begins.
func (s *sight) floor(now time.Time) table.Floor {
	for len(s.marks) > 1 && now.Sub(s.marks[1].at) >= lateAfter {
		s.marks = slices.Delete(s.marks, 0, 1)
	}
	return s.marks[0].floor
}
