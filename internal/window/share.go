package window

import (
	"time"

	"github.com/delaybridge/delaybridge/internal/wait"
)

// health is whether the sink answers at all.
type health struct {
	answered time.Time // the last answer of any kind
	down     bool
	// While it is down, one message is let through at retryAt, and the next after
	// another pause, so that one that hangs does not keep the others waiting.
	probing bool
	retryAt time.Time
	pause   wait.Backoff
	paused  time.Duration
}

// probe lets one message through where it is time for it.
func (h *health) probe(now time.Time) bool {
	if now.Before(h.retryAt) {
		return false
	}
	h.probing, h.retryAt = true, now.Add(h.paused)
	return true
}

// Every widerProbe-th probe in a row lets widerProbeSize messages through, so that
// one message whose outcome is always unknown cannot keep the sink down for ever.
const (
	widerProbe     = 4
	widerProbeSize = 8
)

// size is how many messages a probe lets through.
func (h *health) size() int {
	if h.pause.Failures()%widerProbe == 0 {
		return widerProbeSize
	}
	return 1
}

// fail notes a failure of the whole sink. Messages that were in flight when it
// went down count once.
func (h *health) fail(now time.Time) (isNew, counts bool) {
	if h.down && !h.probing {
		return false, false
	}
	isNew = !h.down
	h.down, h.probing, h.paused = true, false, h.pause.Next()
	h.retryAt = now.Add(h.paused)
	return isNew, true
}

// answer notes that the sink has dealt with a message.
func (h *health) answer(now time.Time) (wasDown bool) {
	wasDown = h.down
	h.answered, h.down, h.probing = now, false, false
	h.pause.Reset()
	return wasDown
}

// Share is one shard's part of a window. Its methods are safe for concurrent use.
type Share struct {
	window *Window
	wake   func()

	// Guarded by window.mu.
	inFlight  load
	granted   load // promised while it waited, not taken yet
	want      int
	isWaiting bool
}

// Join returns a share of nothing. wake is called when a Reserve that was
// refused would succeed; it must not block.
func (w *Window) Join(wake func()) *Share { return &Share{window: w, wake: wake} }

// Reserve asks for room for up to so many messages before they are claimed, and
// returns how many and how many bytes. What is reserved must be given to Use.
// Where there is none, the share waits in the queue and is woken, if queued is
// set; retryAt, unless zero, is when to ask again in any case.
func (s *Share) Reserve(want int, queued bool) (messages, bytes int, retryAt time.Time) {
	w := s.window
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.granted.messages > 0 {
		granted := s.granted
		s.granted = load{}
		return granted.messages, granted.bytes, time.Time{}
	}
	var granted load
	switch {
	case !w.health.down && (len(w.waiting) == 0 || w.waiting[0] == s):
		granted = w.grant(want)
		w.limit.short = w.limit.short || granted.messages < want
	case w.health.down && w.health.probe(time.Now()):
		granted = load{min(want, w.health.size()), w.limit.bytes()}
	}
	if granted.messages > 0 {
		s.hold(granted)
		s.leaveQueue()
		return granted.messages, granted.bytes, time.Time{}
	}
	if queued {
		s.queue(want)
	}
	if w.health.down {
		retryAt = w.health.retryAt
	}
	return 0, 0, retryAt
}

func (s *Share) queue(want int) {
	s.want = want
	if s.isWaiting {
		return
	}
	s.join()
	s.isWaiting = true
	s.window.waiting = append(s.window.waiting, s)
}

// Use says what a reservation was used for; the rest is free again.
func (s *Share) Use(reserved, reservedBytes, messages, bytes int) {
	s.free(load{reserved - messages, reservedBytes - bytes})
}

// Answered says that the broker acknowledged so many messages, or refused them,
// took after they were handed to the sink; it is what the limit learns from.
func (s *Share) Answered(messages, bytes int, took time.Duration) (wasDown bool) {
	w := s.window
	w.mu.Lock()
	now := time.Now()
	wasDown = w.health.answer(now)
	w.limit.acknowledged(messages, bytes, w.used.messages, took, now)
	served := s.freed(load{messages, bytes})
	w.mu.Unlock()
	wake(served)
	return wasDown
}

// Gone says that so many messages are in flight no more, or are not to be
// counted any more, without anything to learn from.
func (s *Share) Gone(messages, bytes int) { s.free(load{messages, bytes}) }

// Down says that the whole sink failed, and returns true where that is new.
// Those that wait are woken: they learn when to ask again.
func (s *Share) Down() (isNew bool) {
	w := s.window
	w.mu.Lock()
	isNew, counts := w.health.fail(time.Now())
	var waiting []*Share
	if counts {
		w.limit.collapse()
		waiting = append(waiting, w.waiting...)
	}
	w.mu.Unlock()
	wake(waiting)
	return isNew
}

// Leave gives everything back. The share may be used again.
func (s *Share) Leave() {
	w := s.window
	w.mu.Lock()
	s.leaveQueue()
	s.granted = load{}
	served := s.freed(s.inFlight)
	w.mu.Unlock()
	wake(served)
}

func (s *Share) free(part load) {
	s.window.mu.Lock()
	served := s.freed(part)
	s.window.mu.Unlock()
	wake(served)
}

func (s *Share) freed(part load) []*Share {
	s.unhold(part)
	return s.window.serve()
}

func (s *Share) hold(part load) {
	s.join()
	s.inFlight.messages += part.messages
	s.inFlight.bytes += part.bytes
	s.window.used.messages += part.messages
	s.window.used.bytes += part.bytes
}

func (s *Share) unhold(part load) {
	active := s.isActive()
	s.inFlight.messages -= part.messages
	s.inFlight.bytes -= part.bytes
	s.window.used.messages -= part.messages
	s.window.used.bytes -= part.bytes
	if active && !s.isActive() {
		s.window.active--
	}
}

// join counts the share among the active ones; it is about to be.
func (s *Share) join() {
	if !s.isActive() {
		s.window.active++
	}
}

func (s *Share) isActive() bool { return s.isWaiting || s.inFlight.messages > 0 }

func (s *Share) leaveQueue() {
	if !s.isWaiting {
		return
	}
	for i, other := range s.window.waiting {
		if other == s {
			s.window.waiting = append(s.window.waiting[:i:i], s.window.waiting[i+1:]...)
			break
		}
	}
	s.isWaiting = false
	if s.inFlight.messages == 0 {
		s.window.active--
	}
}
