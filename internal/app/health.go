package app

import (
	"sync/atomic"
	"time"
)

// silentRedis is how long Redis may be silent before we are not ready.
const silentRedis = 10 * time.Second

// health is what /readyz and /livez go by.
type health struct {
	lastAnswer atomic.Pointer[time.Time]
	draining   atomic.Bool
}

func newHealth() *health { return &health{} }

func (h *health) redisAnswered() {
	now := time.Now()
	h.lastAnswer.Store(&now)
}

// redisSilence is how long ago Redis answered last; ok is false if it never did.
func (h *health) redisSilence() (silence time.Duration, ok bool) {
	last := h.lastAnswer.Load()
	if last == nil {
		return 0, false
	}
	return time.Since(*last), true
}
