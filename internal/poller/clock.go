package poller

import (
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

// clock tells the instants of a queue's shards: how long a moment is after the
// poller was made, by the monotonic clock.
type clock struct {
	base time.Time
	// phase is how long base is after [wait.Began].
	phase time.Duration
}

func newClock() clock {
	base := time.Now()
	return clock{base: base, phase: base.Sub(wait.Began)}
}

func (c *clock) now() time.Duration { return time.Since(c.base) }

// nextCommon is the first of the instants after now at which all shards of the
// process renew their leases, so that their calls can travel together. There is
// one in each such time.
func (c *clock) nextCommon(now, every time.Duration) time.Duration {
	passed := (now + c.phase) % every
	if passed < 0 {
		passed += every
	}
	return now + every - passed
}
