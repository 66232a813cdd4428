package overhttp

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/sinks"
)

// ErrNoSlot is why a request was not made.
var ErrNoSlot = errors.New("no request ended within the publish timeout")

// Slots bound the requests of a route that are under way, and know how the last ones went.
type Slots struct {
	slots  chan struct{} // one for each request that is under way
	refuse func(error) sinks.Outcome

	mu        sync.Mutex
	heldUntil time.Time     // the route wants no requests before
	held      sinks.Outcome // what it said
	failedAt  time.Time     // when a request, or a connection, failed last
	failure   sinks.Outcome
	alive     time.Time // when it answered last
}

// NewSlots are n slots. refuse says what an error means for a message that was not handed over.
func NewSlots(n int, refuse func(error) sinks.Outcome) *Slots {
	return &Slots{slots: make(chan struct{}, n), refuse: refuse}
}

// Take waits for a slot, which the caller gives back by [Slots.Release]. There is none, and ok is
// false, where the route wants no requests now, where others have failed meanwhile,
// or where nothing was answered for the time of the timeout.
func (s *Slots) Take(ctx context.Context, timeout time.Duration) (refusal sinks.Outcome, ok bool) {
	began := time.Now()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		select {
		case s.slots <- struct{}{}:
			if refusal, ok = s.mayAsk(began); !ok {
				s.Release()
			}
			return refusal, ok
		case <-ctx.Done():
			return s.refuse(context.Cause(ctx)), false
		case <-timer.C:
			quiet := s.quiet(began)
			if quiet >= timeout {
				return s.refuse(ErrNoSlot), false
			}
			timer.Reset(timeout - quiet)
		}
	}
}

// Release gives a slot back.
func (s *Slots) Release() { <-s.slots }

// mayAsk reports whether a message that has waited since then may be sent, and else why not.
func (s *Slots) mayAsk(since time.Time) (refusal sinks.Outcome, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case time.Now().Before(s.heldUntil):
		refusal = s.held
	case s.failedAt.After(since): // It would fare no better.
		refusal = s.failure
	default:
		return sinks.Outcome{}, true
	}
	refusal.Class, refusal.OfRoute = sinks.Unavailable, false
	return refusal, false
}

// quiet is for how long the route has answered nothing, since then at the most.
func (s *Slots) quiet(since time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.alive.After(since) {
		since = s.alive
	}
	return time.Since(since)
}

// Failed learns that what waits now would fare no better.
func (s *Slots) Failed(outcome sinks.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failedAt, s.failure = time.Now(), outcome
}

// Answered learns of an answer, and for how long the route wants no other requests, which
// the caller bounds.
func (s *Slots) Answered(outcome sinks.Outcome, pause time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alive = time.Now()
	if pause > 0 {
		s.heldUntil, s.held = s.alive.Add(pause), outcome
	}
}
