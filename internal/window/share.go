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
// Hold says that it is used; a share reserves once at a time. Where there is none, the share waits in the queue and is
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
