package window

import (
	"slices"
	"time"
)

// Share is one shard's part of a window. Its methods are safe for concurrent use.
type Share struct {
	window *Window
	queue  string
	wake   func()

	// Guarded by window.mu.
	inFlight  load
	kept      load      // reserved, or granted while the share waited and not fetched yet
	keptAt    time.Time // since when a claim is under way for what is kept
	isGranted bool
	isProbe   bool // kept is for a probe of a sink that is down
	want      int
	isWaiting bool
}

// Reserve asks for room for up to want messages, at least one, before they are claimed, and returns for how
// many messages and bytes there is room. The room is kept until Hold says that it is used; a share has one
// reservation at a time. If there is no room and queued is set, the share waits in the queue and is woken;
// retryAt, if not zero, is when to ask again in any case, because the sink is down.
func (s *Share) Reserve(want int, queued bool) (messages, bytes int, retryAt time.Time) {
	w := s.window
	w.mu.Lock()
	isDown := w.isDown()
	granted, served := s.reserve(max(1, want), queued)
	s.keptAt = w.now()
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
// queue, because there is nothing left to claim.
func (s *Share) Yield() {
	s.window.mu.Lock()
	s.leaveQueue()
	s.drop()
	served := s.window.serve()
	s.window.mu.Unlock()
	wake(served)
}

// Hold sets how much is in flight now. isUsed ends the reservation, because it is in flight or no
// longer needed.
func (s *Share) Hold(messages, bytes int, isUsed bool) {
	w := s.window
	w.mu.Lock()
	inFlight, kept := load{messages, bytes}, s.kept
	if isUsed {
		// The next message may not have found room in the other half of the bytes.
		if found := inFlight.minus(s.inFlight); found.messages > 0 && (found.messages >= kept.messages || found.bytes >= kept.bytes/2) {
			w.limit.claimed(found.messages, w.now().Sub(s.keptAt))
		}
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

// holds sets how much the share holds.
func (s *Share) holds(inFlight, kept load) {
	wasActive := s.isActive()
	s.window.hold(s.queue, s.inFlight, inFlight, s.kept, kept)
	s.inFlight, s.kept = inFlight, kept
	s.isGranted = s.isGranted && kept.messages > 0
	s.window.count(s.isActive(), wasActive)
}

// grant gives room to a waiting share, which stays active.
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

// part returns what one of that many shares gets at a time.
func part(size, shares int) int {
	return max(1, size/max(1, shares), min(worthwhile, size/leastParts))
}

// grant returns how much a share may have now of what it wants, or nothing if
// that would be too little for a claim. If nothing is in flight, there is
// always room, since nobody asks for more than the whole window.
func (w *Window) grant(want, shares int) load {
	size := w.limit.size()
	most := min(want, part(size.messages, shares))
	free := size.minus(w.inFlight).minus(w.kept)
	// Twice the bytes that this many messages usually have; the rest is given back
	// after the claim.
	bytes := max(1, min(size.bytes, 2*int(w.limit.each())*most))
	switch {
	case free.messages >= (most+1)/2 && free.bytes >= (bytes+3)/4:
		return load{min(most, free.messages), min(bytes, free.bytes)}
	case w.inFlight.messages < littleMessages && w.inFlight.bytes < littleBytes:
		return load{min(want, fewMessages), fewBytes}
	default:
		return load{}
	}
}

// next returns whose turn it is: the share that holds the least, among equals the
// first. So a queue with little to publish does not wait behind one with much, and
// a share whose messages hang withholds no more than its part.
func (w *Window) next() int {
	least := 0
	for i, s := range w.waiting {
		if s.held() < w.waiting[least].held() {
			least = i
		}
	}
	return least
}

// serve gives free room to the waiting shares in turn, and returns the shares to wake.
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

// hold replaces what a share of the queue held by what it holds now.
func (w *Window) hold(queue string, inFlight, inFlightNow, kept, keptNow load) {
	if inFlightNow.messages > 0 {
		w.usedAt[queue] = w.now()
	}
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

// lineUp adds a share to the queue, stepOut removes it.
func (w *Window) lineUp(s *Share) { w.waiting = append(w.waiting, s) }

func (w *Window) stepOut(s *Share) {
	w.waiting = slices.DeleteFunc(w.waiting, func(other *Share) bool { return other == s })
}

// activeWith returns how many shares are active, including this one.
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
