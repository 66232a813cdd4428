// Package clock estimates the clocks of Redis servers without asking them.
package clock

import (
	"sync/atomic"
	"time"
)

const (
	// clockLife is how long an estimate is used to bound a run before Redis is
	// asked again.
	clockLife = 10 * time.Second
	// driftShare is which share of a time by our monotonic clock Redis' clock may
	// be behind: 1/1024 is twice what NTP slews at the most.
	driftShare = 1024
)

// Clock estimates the clock of one Redis server without asking it: the last TIME
// seen, plus the monotonic time since its reply came. The reply was sent before
// it came, so the estimate is not ahead of Redis' clock by more than its drift,
// unless that clock is set back. It is safe for concurrent use.
type Clock struct {
	seen atomic.Pointer[sighting]
}

// sighting is a TIME of Redis and when its reply came.
type sighting struct {
	redisMs int64
	at      time.Time
	doubted bool // another server may answer by now
}

// Observe takes a TIME that Redis has just told.
func (c *Clock) Observe(redisMs int64) {
	c.seen.Store(&sighting{redisMs: redisMs, at: time.Now()})
}

// Learn takes the TIME of a reply to what was sent when FloorMs was sentMs. The
// reply may have come late: it counts where it is ahead of the estimate, or
// shows that the estimate was ahead of Redis' clock, which was set back.
func (c *Clock) Learn(redisMs, sentMs int64) {
	if redisMs >= c.FloorMs() || redisMs < sentMs {
		c.Observe(redisMs)
	}
}

// NowMs is the estimate, and false if Redis has not told the time yet.
func (c *Clock) NowMs() (int64, bool) {
	seen := c.seen.Load()
	if seen == nil {
		return 0, false
	}
	return seen.redisMs + time.Since(seen.at).Milliseconds(), true
}

// FloorMs is what Redis' clock has reached at the least, whatever its drift.
func (c *Clock) FloorMs() int64 {
	seen := c.seen.Load()
	if seen == nil {
		return 0
	}
	return seen.redisMs + AtLeast(time.Since(seen.at)).Milliseconds()
}

// AtLeast is how far Redis' clock goes within d of our monotonic clock.
func AtLeast(d time.Duration) time.Duration { return d - d/driftShare }

// AtMost is the counterpart of [AtLeast].
func AtMost(d time.Duration) time.Duration { return d + d/driftShare }

// Doubt has Redis asked before the estimate bounds a run again: after a failover
// the server that answers may be another one, whose clock is behind.
func (c *Clock) Doubt() {
	if seen := c.seen.Load(); seen != nil && !seen.doubted {
		c.seen.CompareAndSwap(seen, &sighting{redisMs: seen.redisMs, at: seen.at, doubted: true})
	}
}

// Known reports whether the estimate may bound a run; else Redis is to be asked.
func (c *Clock) Known() bool {
	seen := c.seen.Load()
	return seen != nil && !seen.doubted && time.Since(seen.at) < clockLife
}
