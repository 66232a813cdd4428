// Package routes knows which parts of the broker take nothing, and where their messages wait.
//
// Brokers fail by parts. Where an outcome says that a message's route is unavailable, or where
// it hangs, the route is closed and its messages are parked: they leave the head of the shard
// once, into a slot of their own, with their due times. A slot is probed with a message, after
// growing pauses; once the broker takes it, the slot is claimed in due order until it is empty,
// and only then the route is open again:
//
//	 an outcome of the route, or none for long
//	   │         ┌─ each failure: a longer pause
//	   ▼         ▼ │
//	open ────► down ──a message was taken──► back ──slot empty, nothing sent since──► open
//	   ▲        │ ▲ └──────failure──────────────┘
//	   │        │ └─another patience─┐
//	   │        └─closed for too long┴► givenUp ──dead letters, until the slot is empty──► open
//	   └──── paused by an operator: paused ──resumed──► back
//
// A message is sent to a slot only while its route is closed, and a route is opened only when a
// claim has emptied the slot and none was sent there since: so nothing of a route is published
// before what is parked of it (I15). A route has one slot. More routes than there are slots
// share the last one, and are closed together.
//
// A [Table] has the routes of one shard. It takes what was claimed and what the sink has
// said, and answers which slot to claim from next. It reads no clock, does no I/O and starts no
// goroutine; [Suspects] alone are shared by the shards of a queue.
package routes

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/poller/rate"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// maxSharing is how many routes that share the last slot are known by name. If there are
// more, all count as closed that have no slot of their own, while it is not empty.
const maxSharing = 4096

var errHangs = errors.New("a message was not answered for long")

// Config is what a [Table] needs.
type Config struct {
	Log *slog.Logger
	// Slots is how many there are.
	Slots int
	// Name is the route of a message, as far as the sink knows before it is published.
	Name func(*message.Message) sinks.Route
	// SayNow reports whether a trouble is worth a line in the log again.
	SayNow   func(trouble string) bool
	Suspects *Suspects
	Quota    *rate.Quota
	// Backoff makes the pauses between probes.
	Backoff func(initial, limit time.Duration) wait.Backoff
}

// Table has the closed routes of one shard. It is not safe for concurrent use.
type Table struct {
	Config

	isAny    bool // a message may have to be parked
	isBehind bool // see IsBehind
	hasGrown bool // a message has come to a slot since it was asked what is parked
	patience time.Duration
	hasRates bool // of topics
	byName   map[sinks.Route]*Route
	bySlot   []*Route // by slot; nil if it is free
	turn     int      // the slot that was claimed from last
	free     []int    // slots that Redis may forget
	sharing  int      // routes that have no slot of their own
	// isFull: what shares the last slot is not known by name.
	isFull bool
	paused map[string]time.Time // topics, and since when
}

// Parking is a message of a claim that goes to the slot of a route.
type Parking struct {
	Index int
	Route *Route
}

// New returns a table of a shard that nothing is known of.
func New(c Config) *Table {
	t := &Table{Config: c}
	t.clear()
	return t
}

func (t *Table) clear() {
	t.byName, t.bySlot, t.free = make(map[sinks.Route]*Route), make([]*Route, t.Slots+1), nil
	t.sharing, t.isFull = 0, false
}

// Follow takes how long a route may be closed before it is given up, and whether topics have
// rates. What was given up is probed again, and given up again if that fails.
func (t *Table) Follow(patience time.Duration, hasRates bool) {
	t.patience, t.hasRates = patience, hasRates
	t.each((*Route).tryAgain)
	t.look()
}

// Pause sets which topics are paused from now on. A route of another topic continues
// where it was: its parked messages are claimed, in due order.
func (t *Table) Pause(topics map[string]time.Time) {
	t.paused = topics
	t.each(func(r *Route) {
		if r.state != open {
			t.holdIfPaused(r, r.topic)
		}
		if _, isPaused := topics[r.topic]; !isPaused {
			r.resume()
		}
	})
	t.look()
}

func (t *Table) holdIfPaused(r *Route, topic string) {
	if since, isPaused := t.paused[topic]; isPaused {
		r.hold(topic, since)
	}
}

// Ask says that Redis is asked for what is parked, for Load.
func (t *Table) Ask() { t.isBehind, t.hasGrown = false, false }

// Load takes what Redis has parked in the shard. It forgets all else where the
// shard has come from another holder.
func (t *Table) Load(parked []message.ParkedRoute, now time.Duration, isNew bool) {
	if isNew { // Whether the answer has what came meanwhile is not known.
		t.isBehind = t.isBehind || t.hasGrown
		t.clear()
	}
	for _, p := range parked {
		if p.Slot < 1 || p.Slot > t.Slots {
			continue
		}
		r := t.bySlot[p.Slot]
		if r == nil {
			r = loadedRoute(p, now, t.Backoff(probeInitial, probeLimit))
			t.add(r)
			t.isFull = t.isFull || p.Slot == t.Slots
			t.holdIfPaused(r, p.Route) // Where the topic is not the name, the first probe tells it.
		}
		r.reopen(now) // What was claimed from it may have been put back.
	}
	t.look()
}

func (t *Table) add(r *Route) { t.byName[r.name], t.bySlot[r.slot] = r, r }

func (t *Table) each(do func(*Route)) {
	for _, r := range t.bySlot {
		if r != nil {
			do(r)
		}
	}
}

// look refreshes isAny.
func (t *Table) look() {
	t.isAny = len(t.paused) > 0 || t.hasRates ||
		slices.ContainsFunc(t.bySlot, func(r *Route) bool { return r != nil && r.state != open })
}

// find returns the closed route that one of the names belongs to: a sink may
// know only the topic at first, and later which part of it.
func (t *Table) find(name sinks.Route, topic string) *Route {
	if !t.isAny {
		return nil
	}
	for _, r := range [...]*Route{t.byName[name], t.byName[sinks.Route(topic)]} {
		if r != nil && r.state != open {
			return r
		}
	}
	if last := t.bySlot[t.Slots]; t.isFull && t.byName[name] == nil && last != nil && last.state != open {
		return last
	}
	return nil
}

// IsClosed reports whether a message's route is.
func (t *Table) IsClosed(m *message.Message) bool {
	return t.isAny && t.find(t.Name(m), m.Topic) != nil
}

// IsDown reports whether a message's route is closed, and nobody has had an answer since.
func (t *Table) IsDown(m *message.Message) bool {
	if !t.isAny {
		return false
	}
	r := t.find(t.Name(m), m.Topic)
	return r != nil && r.state == down
}

// Park sends a message to the slot of its route, if that is closed or the topic
// is paused. It returns nil if it is open. The empty name is the one that the sink knows.
func (t *Table) Park(name sinks.Route, m *message.Message) *Route {
	if !t.isAny {
		return nil
	}
	if name == "" {
		name = t.Name(m)
	}
	r := t.find(name, m.Topic)
	if since, isPaused := t.paused[m.Topic]; isPaused && r == nil {
		r = t.named(name, since)
	}
	if r == nil {
		return nil
	}
	return t.send(r, m.Topic)
}

// ParkAll decides which messages of a claim go to the slots of routes that are
// closed, or of topics whose rate they exceed.
func (t *Table) ParkAll(messages []message.ClaimedMessage, now time.Duration, redisNow time.Time) (parked []Parking) {
	if t.Suspects.isAny(now) { // What hangs in another shard is not tried here.
		for i := range messages {
			if messages[i].Err == nil {
				t.suspect(&messages[i].Message, now, redisNow)
			}
		}
	}
	if !t.isAny {
		return nil
	}
	for i := range messages {
		if messages[i].Err != nil {
			continue
		}
		r := t.Park("", &messages[i].Message)
		if r == nil {
			r = t.throttle(&messages[i].Message, redisNow)
		}
		if r != nil {
			parked = append(parked, Parking{i, r})
		}
	}
	return parked
}

// ParkPaused sends those messages of a claim from a slot back to it whose topic is
// paused: it may not have been known, or was paused meanwhile. From the slot of a key they
// go to that of their own route, and keep no others.
func (t *Table) ParkPaused(from *Route, messages []message.ClaimedMessage) (parked []Parking) {
	if len(t.paused) == 0 {
		return nil
	}
	for i := range messages {
		since, isPaused := t.paused[messages[i].Topic]
		if !isPaused || messages[i].Err != nil {
			continue
		}
		r := from
		if from.isOfKey() {
			r = t.named(t.Name(&messages[i].Message), since)
		}
		parked = append(parked, Parking{i, t.send(r, messages[i].Topic)})
	}
	return parked
}

// PutBack sends what was claimed from a slot back to it.
func (t *Table) PutBack(to *Route, messages []message.ClaimedMessage) (parked []Parking) {
	for i := range messages {
		parked = append(parked, Parking{i, t.send(to, messages[i].Topic)})
	}
	return parked
}

// IsOpening reports whether messages that are claimed from the route's slot are judged one by
// one, as those that come due: their key is there, and their own routes and topics decide.
func (t *Table) IsOpening(r *Route) bool { return r.isOfKey() && r.state == back }

// throttle returns the route in whose slot a message has to wait that has come faster
// than the rate of its topic; nil if it may be published.
func (t *Table) throttle(m *message.Message, redisNow time.Time) *Route {
	if t.Quota.TakeOne(m.Topic) {
		return nil
	}
	r := t.named(t.Name(m), redisNow)
	if r.name == t.Name(m) || r.state == open { // Else it shares the slot of one that is closed already.
		r.throttle(m.Topic, redisNow)
	}
	return t.send(r, m.Topic)
}

// send records that a message goes to the route's slot.
func (t *Table) send(r *Route, topic string) *Route {
	r.send()
	t.holdIfPaused(r, topic)
	return r
}

// Fail closes a route, and sends the message that has shown it to its slot.
func (t *Table) Fail(m *message.Message, cause sinks.Outcome, now time.Duration, redisNow time.Time) *Route {
	name := cause.Route
	if name == "" {
		name = t.Name(m)
	}
	if r := t.find(name, m.Topic); r != nil && !strings.HasPrefix(string(name), KeyRoute) { // Of one Key, none wait anywhere else.
		name = r.name
	}
	r := t.closeRoute(name, cause, now, redisNow)
	if r.giveUp(redisNow, t.patience) {
		t.Log.Error("route given up, its messages go to the dead letters", r.fields()...)
	}
	return t.send(r, m.Topic)
}

// named returns the route of that name, a new one with a slot if need be. Where all are taken,
// it shares the last one.
func (t *Table) named(name sinks.Route, since time.Time) *Route {
	if r := t.byName[name]; r != nil {
		return r
	}
	slot := 1
	for slot < t.Slots && t.bySlot[slot] != nil {
		slot++
	}
	if shared := t.bySlot[slot]; shared != nil {
		if t.sharing++; t.sharing > maxSharing {
			t.isFull = true
			return shared
		}
		t.byName[name] = shared
		return shared
	}
	r := newRoute(name, slot, since, t.Backoff(probeInitial, probeLimit))
	t.add(r)
	return r
}

func (t *Table) closeRoute(name sinks.Route, cause sinks.Outcome, now time.Duration, redisNow time.Time) *Route {
	r := t.named(name, redisNow)
	isNew := r.fail(cause, now, redisNow)
	t.isAny = true
	if isNew && t.SayNow("route\x00"+string(name)) {
		t.Log.Warn("route unavailable, its messages are parked", append(r.fields(), "err", cause.Err)...)
	}
	return r
}

func (r *Route) fields() []any {
	return []any{"event", "park", "route", string(r.name), "reason", string(r.cause.Reason), "since", r.since.UTC().Format(time.RFC3339)}
}

// Hang closes the route of a message that is with the sink for too long: those
// behind it are parked until its outcome is known.
func (t *Table) Hang(m *message.Message, now time.Duration, redisNow time.Time) *Route {
	name := t.Name(m)
	t.Suspects.add(name, now)
	if r := t.find(name, m.Topic); r != nil {
		name = r.name
	}
	r := t.closeRoute(name, sinks.Failed(sinks.Unknown, sinks.ReasonTimeout, errHangs), now, redisNow)
	r.hang()
	return r
}

// suspect closes the route of a message where it hangs in another shard.
func (t *Table) suspect(m *message.Message, now time.Duration, redisNow time.Time) {
	if name := t.Name(m); t.Suspects.has(name, now) && t.find(name, m.Topic) == nil {
		t.closeRoute(name, sinks.Failed(sinks.Unknown, sinks.ReasonTimeout, errHangs), now, redisNow)
	}
}

// HangEnded records that the outcome of a message that hung is known.
func (t *Table) HangEnded(r *Route, isAnswer bool, now time.Duration) {
	if isAnswer {
		t.Suspects.clear(r.name)
	}
	r.hangEnded(isAnswer, now)
}

// Succeed says that the broker has taken a message that was claimed from the slot.
func (t *Table) Succeed(r *Route) {
	t.Suspects.clear(r.name)
	if r.succeed() && t.SayNow("back\x00"+string(r.name)) {
		t.Log.Info("route back, its parked messages are published", "event", "unpark", "route", string(r.name))
	}
}

// Passed records that nothing claimed from the slot is to be published: what is left
// of it is passed over in growing steps.
func (t *Table) Passed(r *Route) { r.grow() }

// Parked records that a message sent to the slot is in Redis, or will never get there any
// more. If the route was forgotten meanwhile, nobody looks at the slot before what is parked is loaded again.
func (t *Table) Parked(r *Route) {
	r.arrived()
	t.hasGrown = true
	t.isBehind = t.isBehind || t.bySlot[r.slot] != r
}

// IsBehind reports whether Redis may have messages in slots that the table does not know.
func (t *Table) IsBehind() bool { return t.isBehind }

// TakeBack records that n messages claimed from the slot are settled.
func (t *Table) TakeBack(r *Route, n int) {
	r.takeBack(n)
	t.dropIfDone(r)
}

// dropIfDone forgets an open route of which nothing is in flight, and its slot.
func (t *Table) dropIfDone(r *Route) {
	if !r.isDone() || t.bySlot[r.slot] != r {
		return
	}
	t.bySlot[r.slot] = nil
	for name, other := range t.byName {
		if other == r {
			delete(t.byName, name)
		}
	}
	if r.slot == t.Slots {
		t.sharing, t.isFull = 0, false
	}
	t.free = append(t.free, r.slot)
}

// Tell returns what Redis is to know of the routes of messages that are parked: once for each,
// and again where the reason has changed.
func (t *Table) Tell(used []*Route) (told []message.ParkedRoute) {
	slices.SortFunc(used, func(a, b *Route) int { return a.slot - b.slot })
	for _, r := range slices.Compact(used) {
		if r.tell() {
			told = append(told, r.info())
		}
	}
	return told
}

// TakeFree returns the slots that Redis may forget.
func (t *Table) TakeFree() (free []int) {
	for _, slot := range t.free {
		if t.bySlot[slot] == nil { // Else it has been taken again since.
			free = append(free, slot)
		}
	}
	t.free = nil
	return free
}

// All are the routes that have slots.
func (t *Table) All() (all []*Route) {
	t.each(func(r *Route) { all = append(all, r) })
	return all
}
