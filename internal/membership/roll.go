package membership

import (
	"slices"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// roll is who lives, by the answers to our heartbeats.
type roll struct {
	// self is our identity. deadAfter is how long a heartbeat may stand still.
	self      string
	deadAfter time.Duration

	// live are the names of those that live, sorted, ours among them.
	live  []string
	known map[string]pulse // by identity
	// heardAt is when we had our last answer.
	heardAt time.Time
	// unsureUntil: after a silence of Redis the first answers may lack instances
	// that were cut off like us. Until then nobody counts as gone.
	unsureUntil time.Time
}

// pulse is the last heartbeat of an instance, in milliseconds of Redis' clock,
// and when it came, by our own.
type pulse struct {
	at   int64
	came time.Time
}

// hear takes the answer to a heartbeat.
func (r *roll) hear(now time.Time, answer []store.Heartbeat) {
	first := r.heardAt.IsZero()
	if first {
		r.known, r.heardAt = map[string]pulse{}, now.Add(-2*r.deadAfter)
	} else if gap := now.Sub(r.heardAt); gap > r.deadAfter/2 {
		r.unsureUntil = now.Add(r.deadAfter / 2)
		for instance, p := range r.known {
			r.known[instance] = pulse{at: p.at, came: p.came.Add(gap)}
		}
	}
	r.note(now, answer)
	r.heardAt = now
	r.live = r.live[:0:0]
	for instance, p := range r.known {
		if name := message.InstanceName(instance); instance == r.self || now.Sub(p.came) <= r.deadAfter {
			r.live = append(r.live, name)
		}
	}
	slices.Sort(r.live)
	r.live = slices.Compact(r.live)
}

// note records each heartbeat that has changed, and forgets instances that have left.
func (r *roll) note(now time.Time, answer []store.Heartbeat) {
	var redisNow int64
	there := make(map[string]bool, len(answer))
	for _, h := range answer {
		there[h.Instance] = true
		if h.Instance == r.self {
			redisNow = h.At // Written by the call that this is the answer to.
		}
	}
	for _, h := range answer {
		if p, known := r.known[h.Instance]; !known || p.at != h.At {
			// Its age by Redis' clock, but at most the time since our last look.
			age := time.Duration(redisNow-h.At) * time.Millisecond
			r.known[h.Instance] = pulse{at: h.At, came: now.Add(-min(max(age, 0), now.Sub(r.heardAt)))}
		}
	}
	for instance := range r.known {
		if !there[instance] && !now.Before(r.unsureUntil) {
			delete(r.known, instance)
		}
	}
}

const (
	// signsOfLife is how often another's heartbeat must advance, since the last
	// one of a killed process may come late.
	signsOfLife = 2
	// namesakePatience is how long the first instance waits for the other to
	// end.
	namesakePatience = 30 * time.Second
)

// namesakes are other instances with our name. If one was there when we joined
// and keeps sending heartbeats, it lives, and we have to end; the heartbeat of a
// killed process stands still. One that comes later finds us in its own first
// answer and ends by itself. If neither can tell who was first (Redis had
// forgotten one that was silent for long), the one with the greater boot id ends.
//
//	the other was there before us | its heartbeat | it is here for longer than the patience | the greater boot id is → we
//	*                             | stands still  | *                                       | *                      → stay
//	*                             | came once     | *                                       | *                      → stay
//	yes                           | came twice    | *                                       | *                      → end
//	no                            | came twice    | yes                                     | ours                   → end
//	no                            | came twice    | *                                       | *                      → stay
type namesakes struct {
	self string
	// joined is set when our first heartbeat was answered, or may have been
	// written without an answer. Others that appear after that came later.
	joined bool
	others map[string]namesake // by identity
}

// namesake is the state of one of them.
type namesake struct {
	earlier  bool
	since    time.Time
	at       int64
	advanced int
}

// unheard records that a heartbeat had no answer.
func (n *namesakes) unheard() { n.joined = true }

// hear takes the answer to a heartbeat, and returns the other instance that has
// our name and keeps it; empty if there is none.
func (n *namesakes) hear(now time.Time, answer []store.Heartbeat) (keeps string) {
	there := map[string]namesake{}
	for _, h := range answer {
		if h.Instance == n.self || message.InstanceName(h.Instance) != message.InstanceName(n.self) {
			continue
		}
		other, known := n.others[h.Instance]
		switch {
		case !known:
			other = namesake{earlier: !n.joined, since: now, at: h.At}
		case other.at != h.At:
			other.at = h.At
			other.advanced++
		}
		there[h.Instance] = other
		yields := other.earlier || now.Sub(other.since) > namesakePatience && n.self > h.Instance
		if yields && other.advanced >= signsOfLife {
			keeps = h.Instance
		}
	}
	n.others, n.joined = there, true
	return keeps
}

// boot is the part of an identity that a process makes at its start.
func boot(instance string) string {
	return strings.TrimPrefix(strings.TrimPrefix(instance, message.InstanceName(instance)), "/")
}
