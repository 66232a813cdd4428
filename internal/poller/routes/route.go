package routes

import (
	"strings"
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

const (
	// maxClaim is the most messages that one claim takes.
	maxClaim = 500
	// rampFactor is how fast claims from a slot grow.
	rampFactor = 4
)

// Reasons why a route is closed that no sink gives.
const (
	reasonPaused sinks.Reason = "paused"
	reasonRate   sinks.Reason = "rate"
)

// KeyRoute begins the name of the route on which messages wait for their key to be known.
const KeyRoute = "key "

// state is what is known of a route.
//
//	what happens                             | state            → state
//	an outcome of it says that it is closed  | open, down, back → down
//	another one after too long               | open             → down
//	another one after too long               | down, back       → givenUp
//	the broker takes a message of the slot   | down             → back
//	an answer to a message that hung         | down             → back
//	a claim empties the slot                 | down             → down
//	a claim empties the slot                 | *                → open
//	a claim finds the slot empty             | *                → open
//	its topic is paused                      | *                → paused
//	its topic is resumed                     | paused           → back
//	the rate of its topic is used up         | open             → back
//	the slot is put back into                | open             → down
//	another patience                         | givenUp          → down
//	*                                        | open             → open
//	*                                        | down             → down
//	*                                        | back             → back
//	*                                        | givenUp          → givenUp
//	*                                        | paused           → paused
type state uint8

const (
	// down: its messages are parked, and probed now and then.
	down state = iota
	// back: the broker takes its messages again; the slot is claimed until
	// it is empty, and new ones still go there, behind the others.
	back
	// givenUp: it was missing or forbidden for longer than the patience; what
	// is parked goes to the dead letters.
	givenUp
	// paused: an operator has paused its topic; nothing is claimed from the slot.
	paused
	// open: nothing is parked; the last messages of the slot are in flight.
	open
)

// Route is one that is or was unavailable, and has a slot for its messages. Only its own
// methods change it, which a [Table] calls.
type Route struct {
	name         sinks.Route
	topic        string // of its messages; empty while that is not known
	slot         int
	state        state
	cause        sinks.Outcome // why it is closed
	since        time.Time     // when it was closed, by Redis' clock
	storedReason sinks.Reason  // the reason that Redis has

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

func newRoute(name sinks.Route, slot int, since time.Time, pause wait.Backoff) *Route {
	return &Route{name: name, slot: slot, since: since, size: 1, pause: pause}
}

// loadedRoute is one of which messages are parked in Redis. It is probed at once.
func loadedRoute(p message.ParkedRoute, now time.Duration, pause wait.Backoff) *Route {
	r := newRoute(sinks.Route(p.Route), p.Slot, p.Since, pause)
	r.cause = sinks.Failed(sinks.Unavailable, sinks.Reason(p.Reason), nil)
	r.storedReason, r.probeAt = sinks.Reason(p.Reason), now
	return r
}

// Slot is where its messages are parked.
func (r *Route) Slot() int { return r.slot }

// Cause is why it is closed, and Since when it was, by Redis' clock.
func (r *Route) Cause() (cause sinks.Outcome, since time.Time) { return r.cause, r.since }

// InFlight is how many of its messages are on their way into the slot, were claimed from
// it, and hang.
func (r *Route) InFlight() (pending, out, hung int) { return r.pending, r.out, r.hung }

// isNameless reports whether a failover has lost which route it is.
func (r *Route) isNameless() bool { return r.name == "" }

// isOfKey reports whether its messages wait for a key: they are of any topics.
func (r *Route) isOfKey() bool { return strings.HasPrefix(string(r.name), KeyRoute) }

// isReady reports whether the slot can be claimed from, and blocked that it
// could be, but for messages that are on their way into it.
func (r *Route) isReady(now time.Duration) (ready, blocked bool) {
	switch r.state {
	case open, paused:
		return false, false
	case down:
		ready = r.hung == 0 && r.out == 0 && now >= r.probeAt
	case givenUp:
		ready = r.out == 0
	case back:
		ready = r.hung == 0 && r.out <= r.size
	}
	ready = ready && now >= r.restUntil
	return ready && r.pending == 0, ready && r.pending > 0
}

// readyAt is when it may be ready, if nothing happens to it before.
func (r *Route) readyAt(now time.Duration) time.Duration {
	switch {
	case r.state == down && r.hung == 0 && r.out == 0 && r.pending == 0:
		return max(r.probeAt, r.restUntil)
	case now < r.restUntil:
		return r.restUntil
	default:
		return wait.Never
	}
}

// claimSize is how many messages the next claim from the slot takes.
func (r *Route) claimSize(batch int) int {
	switch {
	case r.state == givenUp:
		return batch
	case r.state == down && r.pause.Failures()%widerProbe == widerProbe-1:
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
func (r *Route) isHopeless(now time.Time, patience time.Duration) bool {
	switch r.cause.Reason {
	case sinks.ReasonTopicMissing, sinks.ReasonUnroutable, sinks.ReasonAuth, sinks.ReasonUnknownKey:
		return now.Sub(r.since) > patience
	default:
		return false
	}
}

// isDone reports whether it is open and none of its messages is in flight.
func (r *Route) isDone() bool { return r.state == open && r.out <= 0 && r.hung <= 0 && r.pending <= 0 }

// fail closes the route, or keeps it closed, with a pause for each probe that failed. It
// reports whether that is news.
func (r *Route) fail(cause sinks.Outcome, now time.Duration, redisNow time.Time) (isNew bool) {
	switch {
	case r.state == paused:
		return false
	case r.state == givenUp:
		r.cause = cause
		return false
	case r.state == open, r.cause.Reason == reasonPaused, r.cause.Reason == reasonRate, r.since.IsZero(): // A failover has lost since when.
		r.since = redisNow
	}
	isNew = r.state == open || r.pause.Failures() == 0
	r.cause = cause
	if r.state == down && r.failed {
		return isNew
	}
	r.state, r.failed, r.size = down, true, 1
	r.probeAt = now + r.pause.Next()
	return isNew
}

// giveUp sends the route's messages to the dead letters once it is hopeless. It reports
// whether that is news.
func (r *Route) giveUp(now time.Time, patience time.Duration) (isNew bool) {
	if r.state == givenUp || !r.isHopeless(now, patience) {
		return false
	}
	r.state = givenUp
	return true
}

// tryAgain makes a route that was given up be probed again.
func (r *Route) tryAgain() {
	if r.state == givenUp {
		r.state = down
	}
}

// hold closes the route for messages of a topic that is paused. Another topic may share the
// slot: then it waits, too. What waits for a key is sorted out when the key comes.
func (r *Route) hold(topic string, since time.Time) {
	if r.isOfKey() {
		return
	}
	r.topic = topic
	if r.state != paused {
		r.state, r.since = paused, since
		r.cause = sinks.Failed(sinks.Unavailable, reasonPaused, nil)
	}
}

// resume ends a pause. What is parked is claimed, in due order.
func (r *Route) resume() {
	if r.state == paused {
		r.state = back
	}
}

// throttle closes the route for what comes faster than the rate of its topic.
func (r *Route) throttle(topic string, since time.Time) {
	r.topic, r.state, r.since, r.size = topic, back, since, maxClaim
	r.cause = sinks.Failed(sinks.Unavailable, reasonRate, nil)
}

// reopen has a route probed again whose slot was put back into.
func (r *Route) reopen(now time.Duration) {
	if r.state == open {
		r.state, r.probeAt = down, now
	}
}

// send records that a message goes to the slot.
func (r *Route) send() {
	r.parks++
	r.pending++
}

// arrived records that one is there.
func (r *Route) arrived() { r.pending-- }

// claimed notes what a claim from the slot has taken, and whether it is empty. A failover may
// have lost the name. It reports whether the messages are not to be published any more.
func (r *Route) claimed(p *Probe, messages []message.ClaimedMessage, isEmpty bool, name sinks.Route, now time.Duration) (isGivenUp bool) {
	r.failed = false
	r.out += len(messages)
	isGivenUp = r.state == givenUp
	switch {
	case len(messages) > 0:
		r.name = name
		if !r.isOfKey() {
			r.topic = messages[0].Topic
		}
	case !isEmpty: // Redis' clock was set back, and may be set again.
		r.restUntil = now + restFor
	}
	if isEmpty && r.parks == p.parks && r.hung == 0 && (r.state != down || len(messages) == 0) {
		r.state = open
	}
	return isGivenUp
}

// takeBack records that messages which were claimed from the slot are settled.
func (r *Route) takeBack(n int) { r.out -= n }

// hang records a message that is with the sink for too long.
func (r *Route) hang() { r.hung++ }

// hangEnded records the outcome of a message that hung.
func (r *Route) hangEnded(isAnswer bool, now time.Duration) {
	r.hung--
	if isAnswer && r.state == down {
		r.state, r.probeAt = back, now
		r.pause.Reset()
	}
}

// succeed records that the broker has taken a message from the slot. It reports whether the
// route is back by that.
func (r *Route) succeed() (isBack bool) {
	r.grow()
	r.pause.Reset()
	if r.state != down || r.failed {
		return false
	}
	r.state = back
	return true
}

// grow has the next claim take more.
func (r *Route) grow() { r.size = min(r.size*rampFactor, maxClaim) }

// tell reports whether Redis must be told of the route, and records that it is: once, and
// again if the reason has changed.
func (r *Route) tell() (isNew bool) {
	isNew = r.storedReason != r.cause.Reason || r.storedReason == ""
	r.storedReason = r.cause.Reason
	return isNew
}

// info is what Redis keeps for people and for the next holder.
func (r *Route) info() message.ParkedRoute {
	return message.ParkedRoute{Slot: r.slot, Route: string(r.name), Reason: string(r.cause.Reason), Since: r.since}
}
