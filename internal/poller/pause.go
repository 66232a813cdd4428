package poller

import (
	"maps"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// reasonPaused is why a route is closed whose topic an operator has paused.
const reasonPaused sinks.Reason = "paused"

// pauses are what operators have paused of a queue. It never changes.
type pauses struct {
	queue  bool
	topics map[string]time.Time // and since when
}

// Pause says which topics are paused from now on, and since when by Redis' clock; the
// empty one is the whole queue. The messages of a paused topic are parked without
// probes; of a paused queue nothing is claimed, while its leases are renewed. What is
// in flight is finished.
func (p *Poller) Pause(topics map[string]time.Time) {
	next := &pauses{topics: maps.Clone(topics)}
	if _, next.queue = topics[""]; next.queue {
		delete(next.topics, "")
	}
	p.common.paused.Store(next)
	p.lookAgain()
}

// heed takes what operators have changed since the last turn.
func (s *shard) heed() {
	s.routes.follow(s.policy.Load())
	s.quota.holds(!s.isDraining && s.holding.isMine(s.now))
	if paused := s.paused.Load(); paused != s.heeded {
		s.heeded = paused
		s.routes.pause(paused.topics)
	}
}

// isPaused reports whether the whole queue is.
func (s *shard) isPaused() bool { return s.heeded != nil && s.heeded.queue }

// pause takes which topics are paused from now on. A route of another topic goes on
// where it was: what is parked of it is claimed, in due order.
func (rs *routes) pause(topics map[string]time.Time) {
	rs.paused = topics
	for _, r := range rs.bySlot {
		if r.state != routeOpen {
			rs.holdIfPaused(r, r.topic)
		}
		if _, isPaused := topics[r.topic]; r.state == routePaused && !isPaused {
			r.state = routeBack
		}
	}
	rs.look()
}

// holdIfPaused closes the route of a message whose topic is paused. Another topic may
// share the slot: then it waits, too. What waits for a key is told apart when the key comes.
func (rs *routes) holdIfPaused(r *route, topic string) {
	since, isPaused := rs.paused[topic]
	if !isPaused || r.isOfKey() {
		return
	}
	r.topic = topic
	if r.state != routePaused {
		r.state, r.since = routePaused, since
		r.cause = sinks.Failed(sinks.Unavailable, reasonPaused, nil)
	}
}

// parkPaused sends those messages of a claim from a slot back to it whose topic is
// paused: it may not have been known, or was paused meanwhile. From the slot of a key they
// go to that of their own route, and keep no others.
func (rs *routes) parkPaused(from *route, messages []message.Claimed, name func(*message.Message) sinks.Route) (parked []parking) {
	if len(rs.paused) == 0 {
		return nil
	}
	for i := range messages {
		since, isPaused := rs.paused[messages[i].Topic]
		if !isPaused || messages[i].Err != nil {
			continue
		}
		r := from
		if from.isOfKey() {
			r = rs.named(name(&messages[i].Message), since)
		}
		rs.send(r, messages[i].Topic)
		parked = append(parked, parking{i, r})
	}
	return parked
}
