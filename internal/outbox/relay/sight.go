package relay

import (
	"slices"
	"sync"
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
	// firstPatience is how long a look at everything may take. Where that does not suffice, the
	// next one may take twice as long, up to mostPatience: one that never ends would leave what
	// committed late unseen for as long as somebody holds a snapshot.
	firstPatience, mostPatience = 10 * time.Second, 3 * time.Minute
)

// sight decides how a lane looks for pending rows.
//
// A look at everything is the truth, and walks over whatever the database has not yet
// forgotten: while somebody holds a snapshot, that is all that was relayed since then.
// So it is made each time only while it is cheap. Otherwise it takes a small part of the
// time, and the looks in between ask for what is new: what is above the floor, which is
// what was there some seconds ago. Of several lanes, the first one then takes what is new and
// nothing else, so that no row waits for a slow look.
//
// The zero value looks at everything. It belongs to one goroutine.
type sight struct {
	leaves   bool          // the others look at everything while that is slow
	cheap    time.Duration // how long a look at everything may take that is made each time
	shared   *lookout
	whole    time.Time     // when to look at everything again
	slow     time.Time     // when that was slow the last time
	patience time.Duration // how long it may take; 0: firstPatience
	marks    []mark        // what was there, the oldest first; none: everything is looked at
}

// lookout is what the lanes of a relay tell each other of their looks at everything. It is safe
// for concurrent use.
type lookout struct {
	mu    sync.Mutex
	cheap time.Time // when one was cheap the last time
	by    time.Time // when the next one is wanted; zero: it is nobody's wish
}

// tell says that a look at everything has ended, which began then.
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

// wish has somebody look at everything by then.
func (o *lookout) wish(by time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.by.IsZero() || by.Before(o.by) {
		o.by = by
	}
}

// read is what they have told.
func (o *lookout) read() (cheap, by time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.cheap, o.by
}

// mark is what was there at an instant.
type mark struct {
	at    time.Time
	floor table.Floor
}

// view is how to look: at everything, which may take so long, or at what is above a floor.
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

// isSlow reports whether not every look is one at everything.
func (s *sight) isSlow() bool { return len(s.marks) > 0 }

// gaveUp notes that the time for a look at everything did not suffice.
func (s *sight) gaveUp() { s.patience = min(2*max(firstPatience, s.patience), mostPatience) }

// looked notes a look at everything that has ended now, and reports whether it was slow. Where that is
// new, the caller notes a first floor. What was committed beside that look may be below it,
// so the next one comes soon.
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

// pause is how long to pause at the most until everything is looked at again.
func (s *sight) pause(longest time.Duration, now time.Time) time.Duration {
	if s.leaves || !s.isSlow() {
		return longest
	}
	return max(0, min(longest, s.whole.Sub(now)))
}

// reset begins anew, with a look at everything.
func (s *sight) reset() { s.whole, s.marks, s.patience = time.Time{}, nil, 0 }

// hurry has everything be looked at by then.
func (s *sight) hurry(by time.Time) {
	switch {
	case s.leaves && s.isSlow():
		s.shared.wish(by)
	case by.Before(s.whole):
		s.whole = by
	}
}

// note tells what is there now. It becomes the floor when it is old enough.
func (s *sight) note(now time.Time, there table.Floor) {
	if n := len(s.marks); n == 0 || now.Sub(s.marks[n-1].at) >= markEvery {
		s.marks = append(s.marks, mark{now, there})
	}
}
