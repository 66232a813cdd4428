package poller

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// routes knows which routes of a shard are closed, and the slots in which their
// messages are parked. Claims come from the slots; what the sink says closes routes and
// opens them.
//
// A message is sent to a slot only while its route is closed, and a route is
// opened only when a claim has emptied the slot and none was sent there since:
// so nothing of a route is published before what is parked of it.
type routes struct {
	log      *slog.Logger
	slots    int
	sayNow   func(trouble string) bool
	isAny    bool // a route is closed
	suspects *suspects

	policy *Policy
	byName map[sinks.Route]*route
	bySlot map[int]*route
	turn   int                  // the slot that was claimed from last
	free   []int                // slots that Redis may forget
	paused map[string]time.Time // topics, and since when
	quota  *quota

	backoff func(initial, limit time.Duration) wait.Backoff
}

func newRoutes(log *slog.Logger, c *common, q *quota) *routes {
	rs := &routes{
		quota: q, log: log, slots: c.slots, policy: c.policy.Load(), sayNow: c.news.troubles.sayNow, suspects: &c.suspects,
		byName: make(map[sinks.Route]*route), bySlot: make(map[int]*route), backoff: c.backoff,
	}
	rs.look()
	return rs
}

// follow has another policy followed from now on. Its patience may be longer: what was
// given up is probed again, and given up again if that fails.
func (rs *routes) follow(policy *Policy) {
	if rs.policy == policy {
		return
	}
	rs.policy = policy
	for _, r := range rs.bySlot {
		if r.state == routeGivenUp {
			r.state = routeDown
		}
	}
	rs.look()
}

// load takes what Redis has parked in the shard. It forgets all else where the
// shard has come from another holder.
func (rs *routes) load(parked []message.ParkedRoute, now time.Duration, isNew bool) {
	if isNew {
		rs.byName, rs.bySlot, rs.free = make(map[sinks.Route]*route), make(map[int]*route), nil
	}
	for _, p := range parked {
		r := rs.bySlot[p.Slot]
		if r == nil {
			r = newRoute(sinks.Route(p.Route), p.Slot, p.Since, rs.backoff(probeInitial, probeLimit))
			r.cause = sinks.Failed(sinks.Unavailable, sinks.Reason(p.Reason), nil)
			r.told = sinks.Reason(p.Reason)
			r.probeAt = now
			rs.add(r)
			rs.holdIfPaused(r, p.Route) // Where the topic is not the name, the first probe tells it.
		}
		if r.state == routeOpen { // What was claimed from it was put back.
			r.state, r.probeAt = routeDown, now
		}
	}
	rs.look()
}

func (rs *routes) add(r *route) {
	rs.byName[r.name], rs.bySlot[r.slot] = r, r
}

// look refreshes isAny.
func (rs *routes) look() {
	if len(rs.paused)+len(rs.policy.Rates.Topics) > 0 {
		rs.isAny = true
		return
	}
	for _, r := range rs.bySlot {
		if r.state != routeOpen {
			rs.isAny = true
			return
		}
	}
	rs.isAny = false
}

// find returns the closed route that one of the names belongs to: a sink may
// know only the topic at first, and later which part of it.
func (rs *routes) find(name sinks.Route, topic string) *route {
	if r := rs.byName[name]; r != nil && r.state != routeOpen {
		return r
	}
	if r := rs.byName[sinks.Route(topic)]; r != nil && r.state != routeOpen {
		return r
	}
	return nil
}

// isClosed reports whether a message's route is.
func (rs *routes) isClosed(name sinks.Route, topic string) bool {
	if !rs.isAny {
		return false
	}
	return rs.find(name, topic) != nil
}

// isDown reports whether a message's route is closed, and nobody has had an answer
// since.
func (rs *routes) isDown(name sinks.Route, topic string) bool {
	if !rs.isAny {
		return false
	}
	r := rs.find(name, topic)
	return r != nil && r.state == routeDown
}

// park sends a message to the slot of its route, where that is closed or the topic
// is paused. It returns nil where it is open.
func (rs *routes) park(name sinks.Route, topic string) *route {
	if !rs.isAny {
		return nil
	}
	r := rs.find(name, topic)
	if since, isPaused := rs.paused[topic]; isPaused && r == nil {
		r = rs.named(name, since)
	}
	if r != nil {
		rs.send(r, topic)
	}
	return r
}

// parkAll decides which messages of a claim go to the slots of routes that are
// closed, or of topics whose rate they exceed.
func (rs *routes) parkAll(messages []message.Claimed, name func(*message.Message) sinks.Route, redisNow time.Time) (parked []parking) {
	if !rs.isAny {
		return nil
	}
	for i := range messages {
		claimed := &messages[i]
		if claimed.Err != nil {
			continue
		}
		to := name(&claimed.Message)
		r := rs.park(to, claimed.Topic)
		if r == nil {
			r = rs.throttle(to, claimed.Topic, redisNow)
		}
		if r != nil {
			parked = append(parked, parking{i, r})
		}
	}
	return parked
}

// send notes that a message goes to the route's slot.
func (rs *routes) send(r *route, topic string) {
	r.parks++
	r.pending++
	rs.holdIfPaused(r, topic)
}

// fail closes a route, and sends the message that has shown it to its slot.
func (rs *routes) fail(name sinks.Route, topic string, cause sinks.Outcome, now time.Duration, redisNow time.Time) *route {
	if r := rs.find(name, topic); r != nil && !strings.HasPrefix(string(name), keyRoute) { // Of one Key, none wait anywhere else.
		name = r.name
	}
	r := rs.closeRoute(name, cause, now, redisNow)
	if r.state != routeGivenUp && r.isHopeless(redisNow, rs.policy.ParkPatience) {
		r.state = routeGivenUp
		rs.log.Error("route given up, its messages go to the dead letters", rs.fields(r)...)
	}
	rs.send(r, topic)
	return r
}

// named returns the route of that name, a new one with a slot if need be.
func (rs *routes) named(name sinks.Route, since time.Time) *route {
	r := rs.byName[name]
	if r == nil {
		r = newRoute(name, rs.freeSlot(), since, rs.backoff(probeInitial, probeLimit))
		if shared := rs.bySlot[r.slot]; shared != nil {
			return shared // All slots are taken: it shares the last one.
		}
		rs.add(r)
	}
	return r
}

func (rs *routes) closeRoute(name sinks.Route, cause sinks.Outcome, now time.Duration, redisNow time.Time) *route {
	r := rs.named(name, redisNow)
	switch {
	case r.state == routePaused:
		return r
	case r.state == routeGivenUp:
		r.cause = cause
		return r
	case r.state == routeOpen, r.cause.Reason == reasonPaused, r.cause.Reason == reasonRate:
		r.since = redisNow
	}
	isNew := r.state == routeOpen || r.pause.Failures() == 0
	r.fail(cause, now)
	rs.isAny = true
	if isNew && rs.sayNow("route\x00"+string(name)) {
		rs.log.Warn("route unavailable, its messages are parked", append(rs.fields(r), "err", cause.Err)...)
	}
	return r
}

func (rs *routes) fields(r *route) []any {
	return []any{"event", "park", "route", string(r.name), "reason", string(r.cause.Reason), "since", r.since.UTC().Format(time.RFC3339)}
}

// freeSlot is the lowest that no route has; the last one where there is none.
func (rs *routes) freeSlot() int {
	for slot := 1; slot < rs.slots; slot++ {
		if rs.bySlot[slot] == nil {
			return slot
		}
	}
	return rs.slots
}

// hang closes a route of which a message is with the sink for too long: those
// behind it are parked until its outcome is known.
func (rs *routes) hang(name sinks.Route, topic string, now time.Duration, redisNow time.Time) *route {
	rs.suspects.add(name, now)
	if r := rs.find(name, topic); r != nil {
		name = r.name
	}
	r := rs.closeRoute(name, sinks.Failed(sinks.Unknown, sinks.ReasonTimeout, errHangs), now, redisNow)
	r.hung++
	return r
}

// suspectAll closes the routes of messages that hang in another shard.
func (rs *routes) suspectAll(messages []message.Claimed, name func(*message.Message) sinks.Route, now time.Duration, redisNow time.Time) {
	if !rs.suspects.isAny(now) {
		return
	}
	for i := range messages {
		if messages[i].Err == nil {
			rs.suspect(name(&messages[i].Message), messages[i].Topic, now, redisNow)
		}
	}
}

func (rs *routes) suspect(name sinks.Route, topic string, now time.Duration, redisNow time.Time) {
	if !rs.suspects.has(name, now) {
		return
	}
	if rs.find(name, topic) == nil {
		rs.closeRoute(name, sinks.Failed(sinks.Unknown, sinks.ReasonTimeout, errHangs), now, redisNow)
	}
}

// heard says that the outcome of a message that hung is known.
func (rs *routes) heard(r *route, isAnswer bool, now time.Duration) {
	r.hung--
	if isAnswer {
		rs.suspects.clear(r.name)
	}
	if isAnswer && r.state == routeDown {
		r.state, r.probeAt = routeBack, now
		r.pause.Reset()
	}
}

// succeed says that the broker has taken a message that was claimed from the slot.
func (rs *routes) succeed(r *route) {
	rs.suspects.clear(r.name)
	r.size *= rampFactor
	if r.size > maxBatch {
		r.size = maxBatch
	}
	r.pause.Reset()
	if r.state != routeDown || r.failed {
		return
	}
	r.state = routeBack
	if rs.sayNow("back\x00" + string(r.name)) {
		rs.log.Info("route back, its parked messages are published", "event", "unpark", "route", string(r.name))
	}
}

// passed says that nothing that was claimed from the slot is to be published: what is left
// of it is passed over in growing steps.
func (rs *routes) passed(r *route) {
	r.size = min(r.size*rampFactor, maxBatch)
}

// parked says that so many messages that were sent to the slot are in Redis, or
// that nobody will put them there any more.
func (rs *routes) parked(r *route, n int) {
	r.pending -= n
}

// settled says that so many messages that were claimed from the slot are settled.
func (rs *routes) settled(r *route, n int) {
	r.out -= n
	rs.dropIfDone(r)
}

// dropIfDone forgets an open route of which nothing is in flight, and its slot.
func (rs *routes) dropIfDone(r *route) {
	if r.state != routeOpen || r.out > 0 || r.hung > 0 || r.pending > 0 || rs.bySlot[r.slot] != r {
		return
	}
	delete(rs.bySlot, r.slot)
	for name, other := range rs.byName {
		if other == r {
			delete(rs.byName, name)
		}
	}
	rs.free = append(rs.free, r.slot)
}

// putBack sends what was claimed from a slot back to it.
func (rs *routes) putBack(to *route, messages []message.Claimed) (parked []parking) {
	for i := range messages {
		rs.send(to, messages[i].Topic)
		parked = append(parked, parking{i, to})
	}
	return parked
}

// tell returns what Redis is to know of the routes: once for each, and again
// where the reason has changed.
func (rs *routes) tell(used map[*route]bool) []message.ParkedRoute {
	var told []message.ParkedRoute
	for _, r := range slices.SortedFunc(maps.Keys(used), func(a, b *route) int { return a.slot - b.slot }) {
		if r.told != r.cause.Reason || r.told == "" {
			r.told = r.cause.Reason
			told = append(told, r.info())
		}
	}
	return told
}

// takeFree returns the slots that Redis may forget.
func (rs *routes) takeFree() []int {
	var free []int
	for _, slot := range rs.free {
		if rs.bySlot[slot] == nil { // Else it has been taken again since.
			free = append(free, slot)
		}
	}
	rs.free = nil
	return free
}
