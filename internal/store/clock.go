package store

import (
	"sync/atomic"
	"time"
)

// clock estimates Redis' clock without asking it: the last TIME seen, plus the
// monotonic time since its reply came. The reply was sent before it came, so the
// estimate is never ahead of Redis' clock, unless that is set back.
type clock struct {
	seen atomic.Pointer[sighting]
}

type sighting struct {
	redisMs int64
	at      time.Time
}

func (c *clock) observe(redisMs int64) {
	c.seen.Store(&sighting{redisMs: redisMs, at: time.Now()})
}

// observeLate is observe for a reply that was held back, behind a wait, since
// the estimate was sentMs: it counts where that is behind it, or was ahead.
func (c *clock) observeLate(redisMs, sentMs int64) {
	if nowMs, _ := c.nowMs(); redisMs > nowMs || redisMs < sentMs {
		c.observe(redisMs)
	}
}

// nowMs is the estimate, and false if Redis has not told the time yet.
func (c *clock) nowMs() (int64, bool) {
	seen := c.seen.Load()
	if seen == nil {
		return 0, false
	}
	return seen.redisMs + time.Since(seen.at).Milliseconds(), true
}
