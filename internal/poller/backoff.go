package poller

import (
	"math/rand/v2"
	"time"
)

// jitter is how far a wait may differ from its nominal length, either way, so
// that shards and instances do not knock in step.
const jitter = 0.2

// exponential returns initial doubled (failures-1) times, at most limit, with
// jitter. random is in [0, 1). The result never exceeds limit.
func exponential(initial, limit time.Duration, failures int, random float64) time.Duration {
	wait := initial
	for range failures - 1 {
		if wait > limit/2 {
			wait = limit
			break
		}
		wait *= 2
	}
	wait = min(wait, limit)
	return min(limit, time.Duration(float64(wait)*(1-jitter+2*jitter*random)))
}

// backoff is a wait that grows with each failure in a row.
type backoff struct {
	initial, limit time.Duration
	failures       int
}

// next counts a failure and returns how long to wait.
func (b *backoff) next() time.Duration {
	if b.failures < 1<<20 {
		b.failures++
	}
	return exponential(b.initial, b.limit, b.failures, rand.Float64())
}

func (b *backoff) reset() { b.failures = 0 }
