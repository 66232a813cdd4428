package membership

import (
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
)

const (
	// signsOfLife is how often another's heartbeat must advance: the last one of a
	// process that was killed may come late.
	signsOfLife = 2
	// namesakePatience is how long the one that was there first waits for the
	// other to end.
	namesakePatience = 30 * time.Second
)

// namesakes are other instances that have our name. One that was there when we
// joined and goes on sending heartbeats lives, and we have to end; a leftover of
// a killed process stands still. One that comes later finds us in its own first
// answer and ends by itself. Where neither can tell who was first (Redis had
// forgotten one that was silent for long), the one with the greater boot id ends.
type namesakes struct {
	self string
	// joined is set when our first heartbeat was answered, or may have been
	// written without an answer: from then on others come later.
	joined bool
	others map[string]namesake // by identity
}

// namesake is what is known of one of them.
type namesake struct {
	earlier  bool
	since    time.Time
	at       int64
	advanced int
}

// unheard is told that a heartbeat had no answer.
func (n *namesakes) unheard() { n.joined = true }

// hear takes the answer to a heartbeat, and returns the other instance that has
// our name and keeps it; empty where there is none.
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
