package membership

import (
	"slices"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// roll is who lives, as the answers to our heartbeats tell.
type roll struct {
	// self is our identity. deadAfter is how long a heartbeat may stand still.
	self      string
	deadAfter time.Duration

	// live are the names of those that live, sorted, ours among them.
	live  []string
	known map[string]pulse // by identity
	// heardAt is when we had our last answer.
	heardAt time.Time
	// unsureUntil: after a silence of Redis the first answers may lack those that
	// were silent as we were. Until then nobody is taken for gone.
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

// note keeps each heartbeat that has changed, and forgets who has left.
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
			// How old it is Redis tells, but no older than our last look.
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
