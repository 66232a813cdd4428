package routes

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/delaybridge/delaybridge/internal/sinks"
)

const (
	// suspectFor is how long a route stays suspect: longer than the pauses between
	// two probes, so that it does while it hangs.
	suspectFor  = 15 * time.Second
	maxSuspects = 1024
)

// Suspects are the routes that hang, as one of the queue's shards has found. The
// others need not find out by themselves, each with messages that fill the window.
// It is safe for concurrent use.
type Suspects struct {
	until atomic.Int64 // there is none from that instant on
	mu    sync.Mutex
	since map[sinks.Route]time.Duration
}

func (s *Suspects) add(name sinks.Route, now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since == nil || len(s.since) >= maxSuspects {
		s.since = make(map[sinks.Route]time.Duration)
	}
	s.since[name] = now
	s.until.Store(int64(now + suspectFor))
}

func (s *Suspects) isAny(now time.Duration) bool { return int64(now) < s.until.Load() }

// clear says that the route has answered.
func (s *Suspects) clear(name sinks.Route) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.since, name)
}

func (s *Suspects) has(name sinks.Route, now time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	since, known := s.since[name]
	return known && now-since < suspectFor
}
