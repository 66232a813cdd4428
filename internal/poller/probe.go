package poller

import (
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// probe is a claim from a slot: what the loop asks for.
type probe struct {
	route *route
	slot  int
	size  int
	// isFirst: the route takes nothing, as far as is known.
	isFirst bool
	// limited is the topic of whose rate there is enough; empty where it is not asked for: a
	// probe goes out in any case.
	limited string
	parks   int // how many were sent to the slot when the claim was asked for
}

// next is the next slot to claim from now, if any, and else when to look again.
// blocked says that a slot waits for messages that are on their way into it.
// mayProbe says that a route may be tried which takes nothing, as far as is known.
func (rs *routes) next(now time.Duration, batch int, mayProbe bool) (p *probe, at time.Duration, blocked bool) {
	at = now + never
	if !rs.isAny {
		return nil, at, false
	}
	var best *route
	for _, r := range rs.bySlot {
		if r.state == routeDown && !mayProbe {
			continue
		}
		ready, waits := r.isReady(now)
		if r.state == routeBack && (ready || waits) && !rs.quota.mayTake(r.topic, r.out) { // It is woken.
			continue
		}
		blocked = blocked || waits
		if ready && (best == nil || rs.distance(r) < rs.distance(best)) {
			best = r
		}
		if r.state == routeDown && r.hung == 0 && r.out == 0 && r.pending == 0 {
			at = min(at, max(r.probeAt, r.restUntil))
		} else if now < r.restUntil {
			at = min(at, r.restUntil)
		}
	}
	if best == nil {
		return nil, at, blocked
	}
	p = &probe{route: best, slot: best.slot, size: best.claimSize(batch), isFirst: best.state == routeDown, parks: best.parks}
	if best.state == routeBack {
		p.limited = best.topic
	}
	return p, now, blocked
}

// distance is how far the route's slot is behind the one of the last claim, in turn.
func (rs *routes) distance(r *route) int {
	return (r.slot - rs.turn - 1 + message.MaxSlot) % message.MaxSlot
}

// claimed takes the answer to a claim from a slot: how many messages it gave,
// and whether that has emptied the slot. givenUp says that they are not to be
// published any more.
func (rs *routes) claimed(p *probe, messages []message.Claimed, isEmpty bool, now time.Duration, name func(*message.Message) sinks.Route) (givenUp bool) {
	r := p.route
	rs.turn = r.slot
	r.failed = false
	r.out += len(messages)
	if r.name == "" && len(messages) > 0 { // A failover has lost it.
		delete(rs.byName, "")
		r.name = name(&messages[0].Message)
		rs.byName[r.name] = r
	}
	givenUp = r.state == routeGivenUp
	if len(messages) == 0 && !isEmpty { // Redis' clock was set back, and may be set again.
		r.restUntil = now + restFor
	}
	if len(messages) > 0 && !r.isOfKey() {
		r.topic = messages[0].Topic
	}
	if isEmpty && r.parks == p.parks && r.hung == 0 && (r.state != routeDown || len(messages) == 0) {
		r.state = routeOpen
		rs.dropIfDone(r)
		rs.look()
	}
	return givenUp
}
