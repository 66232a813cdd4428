package routes

import (
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

// Probe is a claim from a slot that may be made.
type Probe struct {
	Route *Route
	Size  int // how many messages to claim
	// IsFirst: the route takes nothing, as far as is known.
	IsFirst bool
	// IsNameless: a failover has lost which route the slot is of, and a message tells it. Until
	// then what is due could be parked in another slot, past what waits in this one.
	IsNameless bool
	// Limited is the topic of whose rate there is enough; empty if it is not asked for: a
	// probe goes out in any case.
	Limited string
	parks   int // how many were sent to the slot when the claim was asked for
}

// Next is the next slot to claim from now, if any, and else when to look again.
// blocked says that a slot waits for messages that are on their way into it.
// mayProbe says that a route may be tried which takes nothing, as far as is known.
func (t *Table) Next(now time.Duration, batch int, mayProbe bool) (p *Probe, at time.Duration, blocked bool) {
	at = wait.Never
	if !t.isAny {
		return nil, at, false
	}
	var best *Route
	for _, r := range t.bySlot {
		if r == nil || r.state == down && !mayProbe {
			continue
		}
		ready, waits := r.isReady(now)
		if r.state == back && (ready || waits) && !t.Quota.Await(r.topic, r.out) { // It is woken.
			continue
		}
		blocked = blocked || waits
		if ready && (best == nil || t.isBefore(r, best)) {
			best = r
		}
		at = min(at, r.readyAt(now))
	}
	if best == nil {
		return nil, at, blocked
	}
	p = &Probe{Route: best, Size: best.claimSize(batch), IsFirst: best.state == down, IsNameless: best.isNameless(), parks: best.parks}
	if best.state == back {
		p.Limited = best.topic
	}
	return p, now, blocked
}

// isBefore reports whether a slot is claimed from before another one.
func (t *Table) isBefore(r, other *Route) bool {
	if r.isNameless() != other.isNameless() {
		return r.isNameless()
	}
	return t.distance(r) < t.distance(other)
}

// distance is how far the route's slot is behind the one of the last claim, in turn.
func (t *Table) distance(r *Route) int {
	return (r.slot - t.turn - 1 + message.MaxSlot) % message.MaxSlot
}

// Claimed takes the answer to a claim from a slot: how many messages it gave,
// and whether that has emptied the slot. isGivenUp says that they are not to be
// published any more.
func (t *Table) Claimed(p *Probe, messages []message.ClaimedMessage, isEmpty bool, now time.Duration) (isGivenUp bool) {
	r := p.Route
	t.turn = r.slot
	name := r.name
	if r.isNameless() && len(messages) > 0 {
		name = t.Name(&messages[0].Message)
		delete(t.byName, "")
		t.byName[name] = r
	}
	if isGivenUp = r.claimed(p, messages, isEmpty, name, now); r.state == open {
		t.dropIfDone(r)
		t.look()
	}
	return isGivenUp
}
