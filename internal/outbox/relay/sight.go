package relay

import (
	"slices"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

const (
	// defaultCheapLook is how long a full look may take if every look is to be a full one.
	defaultCheapLook = 10 * time.Millisecond
	// longestRest is the longest time between two full looks.
	longestRest = 30 * time.Second
	// lateAfter is how long after a row got its number its transaction normally commits. The
	// rows of a slower one wait for the next full look.
	lateAfter = 3 * time.Second
	// markEvery is how often the floor may move.
	markEvery = 500 * time.Millisecond
	// firstPatience is how long a full look may take. After a timeout the next one may take twice
	// as long, up to mostPatience: if none ever ended, late commits would stay unseen for as long
	// as a snapshot is open.
	firstPatience, mostPatience = 10 * time.Second, 3 * time.Minute
)

// sight decides how a lane looks for pending rows.
//
// Only a full look finds every pending row, but it walks over all index entries that the database
// has not yet removed: while a snapshot is open, everything relayed since then. So every look is a
// full one only while that is cheap. Otherwise full looks take a small part of the time, and the
// looks in between ask for new rows: those above the floor, the state of some seconds ago. With
// several lanes, the first one then takes only new rows, so that none waits for a slow look.
//
// The zero value makes full looks. It belongs to one goroutine.
type sight struct {
	leaves   bool          // the others make the full looks while these are slow
	cheap    time.Duration // how long a full look may take if every look is to be one
	shared   *lookout
	whole    time.Time     // when to look at everything again
	slow     time.Time     // when that was slow the last time
	patience time.Duration // how long it may take; 0: firstPatience
	marks    []mark        // earlier states, the oldest first; none: every look is a full one
}

// lookout is what the lanes of a relay share about their full looks. It is safe
// for concurrent use.
type lookout struct {
	mu    sync.Mutex
	cheap time.Time // when one was cheap the last time
	by    time.Time // when the next one is wanted; zero: no lane has asked for one
}

// tell records that a full look has ended, and when it began.
func (o *lookout) tell(began time.Time, cheap bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if cheap && began.After(o.cheap) {
		o.cheap = began
	}
	if o.by.Before(began) {
		o.by = time.Time{}
	}
}

// wish asks for a full look by then.
func (o *lookout) wish(by time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.by.IsZero() || by.Before(o.by) {
		o.by = by
	}
}

// read returns what the lanes have told.
func (o *lookout) read() (cheap, by time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.cheap, o.by
}

// mark is the state of the table at an instant.
type mark struct {
	at    time.Time
	floor table.Floor
}

// view is how to look: a full look with its time limit, or only above a floor.
type view struct {
	whole  bool
	within time.Duration
	floor  table.Floor
}

// next is how to look now.
func (s *sight) next(now time.Time) *view {
	cheap, by := s.shared.read()
	if s.leaves && cheap.After(s.slow) {
		s.reset()
	}
	isWished := !by.IsZero() && !now.Before(by)
	if !s.isSlow() || !s.leaves && (isWished || !now.Before(s.whole)) {
		return &view{whole: true, within: max(firstPatience, s.patience)}
	}
	for len(s.marks) > 1 && now.Sub(s.marks[1].at) >= lateAfter {
		s.marks = slices.Delete(s.marks, 0, 1)
	}
	return &view{floor: s.marks[0].floor}
}

// isSlow reports whether some looks are not full ones.
func (s *sight) isSlow() bool { return len(s.marks) > 0 }

// gaveUp records that a full look timed out.
func (s *sight) gaveUp() { s.patience = min(2*max(firstPatience, s.patience), mostPatience) }

// looked records a full look that has just ended, and reports whether it was slow. If it is the
// first slow one, the caller notes a first floor. Rows committed during that look may be below the
// floor, so the next full look comes soon.
func (s *sight) looked(now time.Time, took time.Duration) (slow bool) {
	slow = took > s.cheap
	s.shared.tell(now.Add(-took), !slow)
	if !slow {
		s.reset()
		return false
	}
	s.slow, s.whole = now, now.Add(min(wait.Rest(took), max(longestRest, took)))
	return true
}

// pause is the longest pause before the next full look.
func (s *sight) pause(longest time.Duration, now time.Time) time.Duration {
	if s.leaves || !s.isSlow() {
		return longest
	}
	return max(0, min(longest, s.whole.Sub(now)))
}

// reset starts over, with a full look.
func (s *sight) reset() { s.whole, s.marks, s.patience = time.Time{}, nil, 0 }

// hurry brings the next full look forward to then.
func (s *sight) hurry(by time.Time) {
	switch {
	case s.leaves && s.isSlow():
		s.shared.wish(by)
	case by.Before(s.whole):
		s.whole = by
	}
}

// note records the present state. It becomes the floor when it is old enough.
func (s *sight) note(now time.Time, there table.Floor) {
	if n := len(s.marks); n == 0 || now.Sub(s.marks[n-1].at) >= markEvery {
		s.marks = append(s.marks, mark{now, there})
	}
}
