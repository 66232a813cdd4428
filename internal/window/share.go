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
	holds     load // in flight, reserved and granted
	granted   load // a part of it: served while the share waited, not fetched yet
	want      int
	isWaiting bool
}

// Reserve asks for room for up to want messages, at least one, before they are
// claimed, and returns for how many messages and bytes there is. What is reserved
// must be given to Use. Where there is none, the share waits in the queue and is
// woken, if queued is set; retryAt, unless zero, is when to ask again in any case,
// because the sink is down.
func (s *Share) Reserve(want int, queued bool) (messages, bytes int, retryAt time.Time) {
	w := s.window
	w.mu.Lock()
	granted, served := s.reserve(max(1, want), queued)
	if granted.messages == 0 && w.health.down {
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
		s.change(s.fetch().negative()) // It was granted before the sink went down.
		if most := w.health.probe(w.now()); most > 0 {
			granted = load{min(want, most), w.limit.size().bytes}
			s.change(granted)
			w.leaveQueue(s)
		}
	case s.granted.messages > 0:
		granted = s.fetch()
	case len(w.waiting) == 0:
		granted = w.grant(want, w.activeWith(s))
		s.change(granted)
	}
	if granted.messages > 0 || !queued {
		return granted, nil
	}
	w.joinQueue(s, want)
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
	s.window.leaveQueue(s)
	served := s.free(s.fetch())
	s.window.mu.Unlock()
	wake(served)
}

// Use says what a reservation was used for, which may be more bytes than were
// reserved; the rest is free again.
func (s *Share) Use(reserved, reservedBytes, messages, bytes int) {
	s.Gone(reserved-messages, reservedBytes-bytes)
}

// Answered says that the broker acknowledged so many messages, or refused them,
// took after they were handed to the sink, on average; it is what the limit learns
// from. For messages that Gone was called for already it is called with none: the
// broker answers, nothing else. It returns true where the sink was down until now;
// then all that wait are woken.
func (s *Share) Answered(messages, bytes int, took time.Duration) (wasDown bool) {
	w := s.window
	now := w.now()
	w.mu.Lock()
	wasDown = w.health.answer(now)
	if messages > 0 {
		w.limit.acknowledged(load{messages, bytes}, took, w.used, now)
	}
	served := s.free(load{messages, bytes})
	if wasDown {
		served = append(served, w.waiting...)
	}
	w.mu.Unlock()
	wake(served)
	return wasDown
}

// Gone says that so many messages are in flight no more, or are not to be
// counted any more, without anything to learn from.
func (s *Share) Gone(messages, bytes int) {
	s.window.mu.Lock()
	served := s.free(load{messages, bytes})
	s.window.mu.Unlock()
	wake(served)
}

// Down says that the whole sink failed, and returns true where that is new: then
// those that wait are woken, to learn when to ask again. What was in flight is
// still counted until Gone is called for it.
func (s *Share) Down() (isNew bool) {
	w := s.window
	w.mu.Lock()
	var waiting []*Share
	if isNew = w.health.fail(w.now()); isNew {
		w.limit.collapse()
		waiting = slices.Clone(w.waiting)
	}
	w.mu.Unlock()
	wake(waiting)
	return isNew
}

// Leave gives everything back and leaves the queue. The share may be used again,
// but not before the last Answered and Gone of what it held.
func (s *Share) Leave() {
	s.window.mu.Lock()
	s.window.leaveQueue(s)
	s.granted = load{}
	served := s.free(s.holds)
	s.window.mu.Unlock()
	wake(served)
}

// fetch takes what the share was granted while it waited. It still holds it.
func (s *Share) fetch() load {
	granted := s.granted
	s.granted = load{}
	return granted
}

// free lets go of a part of what the share holds, and returns whom to wake.
func (s *Share) free(part load) (served []*Share) {
	s.change(part.negative())
	return s.window.serve()
}

// change adds to what the share holds. It never becomes less than nothing, so
// that what is said twice, or after Leave, is taken from nobody else.
func (s *Share) change(by load) {
	w := s.window
	before, wasActive := s.holds, s.isActive()
	s.holds = load{max(0, before.messages+by.messages), max(0, before.bytes+by.bytes)}
	if s.holds.messages == 0 {
		s.holds.bytes = 0
	}
	w.used.messages += s.holds.messages - before.messages
	w.used.bytes += s.holds.bytes - before.bytes
	w.limit.holds(w.used)
	w.count(s, wasActive)
}

func (s *Share) isActive() bool { return s.isWaiting || s.holds.messages > 0 }
