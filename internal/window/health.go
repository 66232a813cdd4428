package window

import (
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

const (
	// downFirst and downMost are the pauses between two probes of a sink that is down.
	downFirst = 100 * time.Millisecond
	downMost  = 5 * time.Second
	// forgetAfter is for how long nothing is sent to a sink that is down until that is
	// forgotten: what had failed was cancelled, or paused, and nothing else is there to
	// try it with.
	forgetAfter = 3 * downMost

	// Every widerProbe-th probe in a row lets widerProbeSize messages through, so that
	// one message whose outcome is always unknown cannot keep the sink down for ever.
	widerProbe     = 4
	widerProbeSize = 8
	// claimTime is how long a probe may take to find messages.
	claimTime = downFirst
)

// health is whether the sink answers at all.
type health struct {
	answered time.Time // the last answer of any kind
	down     bool
	tried    time.Time // while it is down: when something was sent last, or failed
	// While it is down, a probe is let through at retryAt. The pause grows with each
	// probe and not with each failure: what was in flight when the sink went down
	// fails too, and a probe that hangs neither keeps the next one waiting nor lets
	// it come sooner.
	retryAt time.Time
	pause   wait.Backoff
}

// fail notes a failure of the whole sink, and returns true where that is new.
func (h *health) fail(now time.Time) (isNew bool) {
	h.tried = now
	if h.down {
		return false
	}
	h.down, h.retryAt = true, now.Add(h.pause.Next())
	return true
}

// probe returns how many messages may go through to a sink that is down: none
// before retryAt. The next who asks has to wait until probed is called, or for
// claimTime.
func (h *health) probe(now time.Time) (messages int) {
	if now.Before(h.retryAt) {
		return 0
	}
	h.retryAt = now.Add(claimTime)
	if (h.pause.Failures()+1)%widerProbe == 0 {
		return widerProbeSize
	}
	return 1
}

// probed says whether the probe has sent anything. One that has found nothing to
// send makes nobody wait.
func (h *health) probed(now time.Time, isSent bool) {
	switch {
	case !h.down:
	case isSent:
		h.tried, h.retryAt = now, now.Add(h.pause.Next())
	default:
		h.retryAt = now
	}
}

// answer notes that the sink has dealt with a message.
func (h *health) answer(now time.Time) (wasDown bool) {
	wasDown = h.down
	h.answered, h.down = now, false
	if wasDown {
		h.pause.Reset()
	}
	return wasDown
}

// forget ends that the sink is down where nobody has tried it for long.
func (h *health) forget(now time.Time) {
	if h.down && now.Sub(h.tried) >= forgetAfter {
		h.down = false
		h.pause.Reset()
	}
}
