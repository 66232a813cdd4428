// Package health is behind /livez and /readyz: whether Redis answers and is fit, and
// whether the brokers answer.
package health

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/delaybridge/delaybridge/internal/admin"
	"github.com/delaybridge/delaybridge/internal/engine/store/rediserr"
)

// silentRedis is how long Redis may be silent before we are not ready.
const silentRedis = 10 * time.Second

// Redis knows whether Redis answers. The zero value has heard nothing yet.
type Redis struct {
	lastAnswer atomic.Pointer[time.Time]
	// lastCause is why the last call that failed did; nil after an answer.
	lastCause atomic.Pointer[string]
}

// Heard records an answer of Redis, or a call without one. It does not block.
func (h *Redis) Heard(err error) {
	if err != nil {
		cause := rediserr.Cause(err)
		h.lastCause.Store(&cause)
		return
	}
	now := time.Now()
	h.lastAnswer.Store(&now)
	h.lastCause.Store(nil)
}

// Check returns the line of /readyz: whether Redis has answered lately, and if not, why.
func (h *Redis) Check() admin.Check {
	check := admin.Check{Name: "redis"}
	last := h.lastAnswer.Load()
	switch {
	case last == nil:
		check.Detail = "has not answered yet"
	case time.Since(*last) > silentRedis:
		check.Detail = fmt.Sprintf("has not answered for %s", time.Since(*last).Round(time.Second))
	default:
		check.OK = true
		return check
	}
	if cause := h.lastCause.Load(); cause != nil {
		check.Detail += ": " + *cause
	}
	return check
}
