package access

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// mostLimiters is how many callers of issuers, and with certificates, may call within a second.
	mostLimiters = 10_000
	// refill is after how long a limiter is full again whatever it allows: then it is as good as a new one.
	refill = time.Second
)

// limiters are those of callers that no file lists, made at their first call. One that is full may be
// forgotten.
type limiters struct {
	mu  sync.Mutex
	all map[limited]*used
}

// limited is whose limiter it is, and what it allows.
type limited struct {
	identity string
	rate     int
}

type used struct {
	*rate.Limiter

	at time.Time
}

// of returns a caller's limiter; where there are too many callers, one that allows nothing.
func (l *limiters) of(identity string, a *allowance) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	key, now := limited{identity, a.rate}, time.Now()
	if known := l.all[key]; known != nil {
		known.at = now
		return known.Limiter
	}
	if len(l.all) >= mostLimiters {
		for key, known := range l.all {
			if now.Sub(known.at) > refill {
				delete(l.all, key)
			}
		}
		if len(l.all) >= mostLimiters {
			return rate.NewLimiter(0, 0)
		}
	}
	if l.all == nil {
		l.all = map[limited]*used{}
	}
	made := &used{a.newLimiter(), now}
	l.all[key] = made
	return made.Limiter
}
