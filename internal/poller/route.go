package poller

import (
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// The pauses between two probes of a route: the longest is part of how late the
// first message is after the route was mended.
const (
	probeInitial = 100 * time.Millisecond
	probeLimit   = 4 * time.Second
	// restFor is how long a slot is left alone in which nothing is due.
	restFor = 2 * time.Second
)

// Every widerProbe-th probe in a row takes widerProbeSize messages, so that one
// message whose outcome is always unknown cannot keep the route closed for ever;
// copyingProbeSize where each may leave a copy at the broker without our knowing, see
// [sinks.Outcome.OfRoute].
const (
	widerProbe       = 4
	widerProbeSize   = 8
	copyingProbeSize = 2
)

// rampFactor is how fast claims from a slot, or after a panic of the sink, grow.
const rampFactor = 4

// routeState is what is known of a route.
type routeState uint8

const (
	// routeDown: its messages are parked, and probed now and then.
	routeDown routeState = iota
	// routeBack: the broker takes its messages again; the slot is claimed until
	// it is empty, and new ones still go there, behind the others.
	routeBack
	// routeGivenUp: it was missing or forbidden for longer than the patience; what
	// is parked goes to the dead letters.
	routeGivenUp
	// routePaused: an operator has paused its topic; nothing is claimed from the slot.
	routePaused
	// routeOpen: nothing is parked; the last messages of the slot are in flight.
	routeOpen
)

// route is one that is or was unavailable.
type route struct {
	name  sinks.Route
	topic string // of its messages; empty while that is not known
	slot  int
	state routeState
	cause sinks.Outcome // why it is closed
	since time.Time     // when it was closed, by Redis' clock
	told  sinks.Reason  // the reason that Redis has

	pause     wait.Backoff
	probeAt   time.Duration
	restUntil time.Duration // nothing was due in the slot
	// failed is set once an outcome of the present probe or claim has counted.
	failed bool
	size   int // how many messages the next claim takes

	parks   int // how many messages were ever sent to the slot
	pending int // of these, not in Redis yet
	out     int // claimed from the slot, not settled yet
	hung    int // with the sink for suspiciously long
}

func newRoute(name sinks.Route, slot int, since time.Time, pause wait.Backoff) *route {
	return &route{
		name: name, slot: slot, since: since, size: 1,
		pause: pause,
	}
}

// isReady reports whether the slot can be claimed from, and blocked that it
// could be, but for messages that are on their way into it.
func (r *route) isReady(now time.Duration) (ready, blocked bool) {
	switch r.state {
	case routeOpen, routePaused:
		return false, false
	case routeDown:
		ready = r.hung == 0 && r.out == 0 && now >= r.probeAt
	case routeGivenUp:
		ready = r.out == 0
	case routeBack:
		ready = r.hung == 0 && r.out <= r.size
	}
	ready = ready && now >= r.restUntil
	return ready && r.pending == 0, ready && r.pending > 0
}

// claimSize is how many messages the next claim from the slot takes.
func (r *route) claimSize(batch int) int {
	switch {
	case r.state == routeGivenUp:
		return batch
	case r.state == routeDown && r.pause.Failures()%widerProbe == widerProbe-1:
		if r.cause.OfRoute {
			return min(batch, copyingProbeSize)
		}
		return min(batch, widerProbeSize)
	default:
		return min(batch, r.size)
	}
}

// isHopeless reports whether the route is closed for a reason that nobody but
// an operator can change, for longer than the patience.
func (r *route) isHopeless(now time.Time, patience time.Duration) bool {
	switch r.cause.Reason {
	case sinks.ReasonTopicMissing, sinks.ReasonUnroutable, sinks.ReasonAuth, sinks.ReasonUnknownKey:
		return now.Sub(r.since) > patience
	default:
		return false
	}
}

// fail closes the route, or keeps it closed, with a pause for each probe that failed.
func (r *route) fail(cause sinks.Outcome, now time.Duration) {
	r.cause = cause
	if r.state == routeDown && r.failed {
		return
	}
	r.state, r.failed, r.size = routeDown, true, 1
	r.probeAt = now + r.pause.Next()
}

// info is what Redis keeps for people and for the next holder.
func (r *route) info() message.ParkedRoute {
	return message.ParkedRoute{Slot: r.slot, Route: string(r.name), Reason: string(r.cause.Reason), Since: r.since}
}
