package window

import (
	"slices"
	"time"
)

// Share is one shard's part of a window. Its methods are safe for concurrent use.
type Share struct {
	window *Window
	wake   func()

	// Guarded by window.mu.
	inFlight  load
	kept      load // reserved; or granted while the share waited, and not fetched yet
	isGranted bool
	isProbe   bool // what is kept is for a sink that is down
	want      int
	isWaiting bool
}

// Reserve asks for room for up to want messages, at least one, before they are
// claimed, and returns for how many messages and bytes there is. It is kept until
// Hold says that it is used; a share reserves once at a time. If there is none, the share waits in the queue and is
// woken, if queued is set; retryAt, unless zero, is when to ask again in any case,
// because the sink is down.
func (s *Share) Reserve(want int, queued bool) (messages, bytes int, retryAt time.Time) {
	w := s.window
	w.mu.Lock()
	isDown := w.isDown()
	granted, served := s.reserve(max(1, want), queued)
	if granted.messages == 0 && isDown {
		retryAt = w.health.retryAt
	}
	w.mu.Unlock()
	wake(served)
	return granted.messages, granted.bytes, retryAt
}

func (s *Share) reserve(want int, queued bool) (granted load, served []*Share) {
	w := s.window
	switch {
	case w.health.down:
		s.drop() // It was granted before the sink went down.
		if most := w.health.probe(w.now()); most > 0 {
			granted = load{min(want, most), w.limit.size().bytes}
			s.holds(s.inFlight, granted)
			s.isProbe = true
			s.leaveQueue()
		}
	case s.isGranted:
		granted = s.fetch()
	case len(w.waiting) == 0:
		granted = w.grant(want, w.activeWith(s))
		s.holds(s.inFlight, granted)
	}
	if granted.messages > 0 || !queued {
		return granted, nil
	}
	s.joinQueue(want)
	served = w.serve()
	if i := slices.Index(served, s); i >= 0 { // It was its turn.
		granted, served = s.fetch(), slices.Delete(served, i, i+1)
	}
	return granted, served
}

// Yield gives back what a queued Reserve was granted meanwhile, and leaves the
// queue: there is nothing to claim for it any more.
func (s *Share) Yield() {
	s.window.mu.Lock()
	s.leaveQueue()
	s.drop()
	served := s.window.serve()
	s.window.mu.Unlock()
	wake(served)
}

// Hold says how much is in flight now, and whether what was reserved is not needed any more: it is
// in flight, or free again.
func (s *Share) Hold(messages, bytes int, isUsed bool) {
	w := s.window
	w.mu.Lock()
	inFlight, kept := load{messages, bytes}, s.kept
	if isUsed {
		kept = load{}
		if s.isProbe {
			s.isProbe = false
			w.health.probed(w.now(), messages > s.inFlight.messages)
		}
	}
	var served []*Share
	if inFlight != s.inFlight || kept != s.kept {
		s.holds(inFlight, kept)
		served = w.serve()
	}
	w.mu.Unlock()
	wake(served)
}

// Leave gives everything back and leaves the queue. The share may be used again,
// but not before the last Answered of what it held.
func (s *Share) Leave() {
	s.window.mu.Lock()
	s.leaveQueue()
	s.isProbe = false
	s.holds(load{}, load{})
	served := s.window.serve()
	s.window.mu.Unlock()
	wake(served)
}

// fetch takes what the share was granted while it waited. It still keeps it.
func (s *Share) fetch() load {
	s.isGranted = false
	return s.kept
}

// drop gives back what the share was granted and has not fetched.
func (s *Share) drop() {
	if s.isGranted {
		s.holds(s.inFlight, load{})
	}
}

// holds sets what the share holds.
func (s *Share) holds(inFlight, kept load) {
	wasActive := s.isActive()
	s.window.hold(s.inFlight, inFlight, s.kept, kept)
	s.inFlight, s.kept = inFlight, kept
	s.isGranted = s.isGranted && kept.messages > 0
	s.window.count(s.isActive(), wasActive)
}

// grant gives a share that waits what it holds from now on. It stays active.
func (s *Share) grant(granted load) {
	s.holds(s.inFlight, granted)
	s.isGranted, s.isWaiting = true, false
}

func (s *Share) joinQueue(want int) {
	s.want = want
	if s.isWaiting {
		return
	}
	wasActive := s.isActive()
	s.isWaiting = true
	s.window.lineUp(s)
	s.window.count(s.isActive(), wasActive)
}

func (s *Share) leaveQueue() {
	if !s.isWaiting {
		return
	}
	s.isWaiting = false
	s.window.stepOut(s)
	s.window.count(s.isActive(), true)
}

func (s *Share) held() int { return s.inFlight.messages + s.kept.messages }

func (s *Share) isActive() bool { return s.isWaiting || s.held() > 0 }

const (
	// A grant is a share's fair part of the window, or, if there are many shares,
	// up to worthwhile messages (and an eighth of the window): claims of a few
	// messages each would cost Redis more than they are worth.
	worthwhile = 32
	leastParts = 8
	// While less than this is in flight, a share gets a few messages in any case.
	littleMessages, littleBytes = leastMessages / 4, leastBytes / 4
	fewMessages, fewBytes       = 8, 8 << 10
)

// part is what one of so many shares gets at a time.
func part(size, shares int) int {
	return max(1, size/max(1, shares), min(worthwhile, size/leastParts))
}

// grant is how much of what a share wants it may have now; nothing where that
// would be too little to be worth a claim. If nothing is in flight, there is
// always something: what is asked for is never more than the whole window.
func (w *Window) grant(want, shares int) load {
	size := w.limit.size()
	most := min(want, part(size.messages, shares))
	free := size.minus(w.inFlight).minus(w.kept)
	// Twice the bytes that so many messages usually have: what is not used is given
	// back after the claim.
	bytes := max(1, min(size.bytes, 2*size.bytes/size.messages*most))
	switch {
	case free.messages >= (most+1)/2 && free.bytes >= (bytes+3)/4:
		return load{min(most, free.messages), min(bytes, free.bytes)}
	case w.inFlight.messages < littleMessages && w.inFlight.bytes < littleBytes:
		return load{min(want, fewMessages), fewBytes}
	default:
		return load{}
	}
}

// next is whose turn it is: that of the share which holds the least, of several
// the first. So a queue with little to publish does not wait behind one with much,
// and a share whose messages hang keeps no more than its part from the others.
func (w *Window) next() int {
	least := 0
	for i, s := range w.waiting {
		if s.held() < w.waiting[least].held() {
			least = i
		}
	}
	return least
}

// serve gives what is free to those that wait, in turn. It returns whom to wake.
func (w *Window) serve() (served []*Share) {
	for len(w.waiting) > 0 && !w.health.down {
		i := w.next()
		s := w.waiting[i]
		granted := w.grant(s.want, w.active)
		if granted.messages == 0 {
			break
		}
		s.grant(granted)
		w.waiting = slices.Delete(w.waiting, i, i+1)
		served = append(served, s)
	}
	return served
}

// hold notes what a share holds instead of what it held.
func (w *Window) hold(inFlight, inFlightNow, kept, keptNow load) {
	w.inFlight = w.inFlight.plus(inFlightNow).minus(inFlight)
	w.kept = w.kept.plus(keptNow).minus(kept)
	w.limit.holds(w.inFlight)
}

// count keeps the number of active shares.
func (w *Window) count(isActive, wasActive bool) {
	switch {
	case isActive && !wasActive:
		w.active++
	case wasActive && !isActive:
		w.active--
	}
}

// lineUp lets a share wait for its turn, stepOut ends that.
func (w *Window) lineUp(s *Share) { w.waiting = append(w.waiting, s) }

func (w *Window) stepOut(s *Share) {
	w.waiting = slices.DeleteFunc(w.waiting, func(other *Share) bool { return other == s })
}

// activeWith is how many shares are active with this one.
func (w *Window) activeWith(s *Share) int {
	if s.isActive() {
		return w.active
	}
	return w.active + 1
}

func wake(shares []*Share) {
	for _, s := range shares {
		s.wake()
	}
}
