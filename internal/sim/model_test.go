package sim

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// model is what must be true. It is told what callers asked and were answered, what Redis'
// commands have done to which message, and what the broker was given and has stored; all by
// the world's events, so that none of it is lost or late.
type model struct {
	w       *world
	lives   []*life
	byBody  map[string]*life
	current map[string]*life // by the key and the member of what Redis has
	holders map[string]string
	changes map[string][]time.Duration // of holders, by the tag of the shard
	layouts []time.Duration            // when the layout was changed
	events  map[string][]time.Duration // when something was the matter, or ceased to be
	jobs    []func(*life) bool         // which lives each of them matches
	left    []*life                    // by a settle, in this command
	claims  map[string]*claimCount
	rows    map[int64]*simRow // of the outbox, as they were committed
	met     map[string]bool   // identities that clients cancel beside their rows
	ofRow   map[int64]*life   // the messages of rows, of those that have gone, too
}

// life is one message from its schedule to its end: another one of the same identity is
// another life. Its body names it.
type life struct {
	body, id, key, topic string
	member               string
	tags                 []string

	isLost bool  // Redis has lost it, and nothing came back from before: a row's message is put back, and marked
	isRow  bool  // it was scheduled with the outbox
	row    int64 // of the outbox, once that is committed

	began      time.Duration // the first call
	accepted   time.Duration // answered; negative: not
	isMaybe    bool          // whether it was created is not known
	isNever    bool          // it was certainly not created
	dues       []time.Time   // one of these is in force
	isFixed    bool          // its due time was never changed
	isLoose    bool          // a job, a redrive or a loss has changed what can be told of it
	mayBeLate  bool          // it may be dropped or buried as late
	ends       []string      // what callers have asked for that ends it
	isOver     string        // what was answered that ended it
	overAt     time.Duration
	cameAt     time.Duration // in Redis
	claimedAt  time.Duration // first, negative: never
	claimedDue int64
	isMoved    bool   // to another due time, since it was claimed first
	tag        string // the shard's
	isRefused  bool   // the broker refused it by itself
	isDead     bool   // it was a dead letter
	isAgain    bool   // it was made again
	unknowns   int
	copies     []*copied
	removed    string // by which script
	removedAt  time.Duration
}

// copied is one handing over to the broker.
type copied struct {
	attempt int
	began   time.Duration
	stored  time.Duration // negative: not
}

// claimCount is how many claims one host has made of one shard in a second.
type claimCount struct {
	second time.Duration
	claims int
	of     int // messages
}

func newModel(w *world) *model {
	return &model{
		w: w, byBody: map[string]*life{}, current: map[string]*life{}, holders: map[string]string{}, changes: map[string][]time.Duration{},
		events: map[string][]time.Duration{}, claims: map[string]*claimCount{}, rows: map[int64]*simRow{}, ofRow: map[int64]*life{}, met: map[string]bool{},
	}
}

// bodyLength is how long the bodies are: "#" and a number.
const bodyLength = 8

// asks makes a life that a caller is about to schedule.
func (m *model) asks(id, key, topic string, tags []string) *life {
	l := &life{
		body: fmt.Sprintf("#%07d", len(m.lives)+1), id: id, key: key, topic: topic, member: message.Member(id, key), tags: tags,
		began: m.w.now(), accepted: -1, claimedAt: -1, cameAt: -1, isFixed: true,
	}
	if m.met[l.member] {
		l.ends = append(l.ends, "cancel")
	}
	m.lives = append(m.lives, l)
	m.byBody[l.body] = l
	return l
}

func (m *model) lifeOf(stored string) *life {
	if len(stored) < bodyLength {
		return nil
	}
	return m.byBody[stored[len(stored)-bodyLength:]]
}

func (m *model) happened(name string) { m.events[name] = append(m.events[name], m.w.now()) }

// was reports whether something of these was the matter at any time since then.
func (m *model) was(since time.Duration, names ...string) bool {
	for _, name := range names {
		if at := m.events[name]; m.w.active[name] > 0 || len(at) > 0 && at[len(at)-1] >= since {
			return true
		}
	}
	return false
}

func tagOf(key string) string {
	from, to := strings.IndexByte(key, '{'), strings.IndexByte(key, '}')
	if from < 0 || to < from {
		return ""
	}
	return key[from : to+1]
}

// effect is told what a command has done.
func (m *model) effect(e effect) {
	tag, script, now := tagOf(e.key), m.w.redis.server.script, m.w.now()
	at := tag + e.member
	if *watched != "" && m.w.log != nil && strings.HasSuffix(e.member, *watched) {
		by := ""
		if h := m.w.redis.server.by; h != nil {
			by = h.name
		}
		m.w.log("%14s     %s by %s: %s of %q, gone %v, score %.0f in slot %d, %.60q", m.w.now(), script, by, e.key, e.member, e.isGone, math.Mod(e.score, 1<<42), int64(e.score)>>42, e.value)
	}
	switch e.what {
	case "holder":
		name, _, _ := strings.Cut(e.value, "|")
		if m.holders[tag] != name {
			m.holders[tag] = name
			m.changes[tag] = append(m.changes[tag], now)
		}
	case "msg":
		l := m.lifeOf(e.value)
		if l == nil {
			return // A claim that found no body; or a poison.
		}
		if !e.isGone {
			if old := m.current[at]; old != nil && old != l {
				m.remove(old, script)
			}
			if l.isNever {
				m.w.fail("I11: %s was created though its call had failed", l)
			}
			if l.cameAt < 0 {
				l.cameAt = now
			}
			if l.isRow && script == "put" && l.removed != "" && !l.isDead && !l.isLoose && !m.was(l.began, "clock") {
				m.w.fail("I3: put brings %s back, which %s removed at %s", l, l.removed, l.removedAt)
			}
			// A further run of a schedule makes again what was published meanwhile, and a redrive
			// forgets the attempts.
			if l.removed == "settle" || script == "redrive" {
				l.isAgain, l.isFixed = true, false
			}
			m.current[at], l.removed, l.tag = l, "", tag
			return
		}
		switch script {
		case "settle":
			m.left = append(m.left, l)
		default:
			m.remove(l, script)
		}
		delete(m.current, at)
	case "deadmsg":
		if l := m.lifeOf(e.value); l != nil {
			if l.isDead = true; e.isGone {
				m.remove(l, script)
			}
		}
	case "attempts":
		if l := m.current[at]; l != nil && !e.isGone {
			fields := strings.Fields(e.value)
			if len(fields) > 4 || len(fields) > 0 && fields[0] != "0" {
				l.isRefused = true
			}
		}
	case "due":
		l := m.current[at]
		if l == nil || !e.isGone || script != "claim" {
			return
		}
		c := m.claimsOf(tag)
		c.of++
		due := int64(e.score) % (1 << 42)
		if l.claimedAt < 0 {
			l.claimedAt, l.claimedDue = now, due
		}
		l.isMoved = l.isMoved || due != l.claimedDue
	}
}

// remove notes that a script has taken a life away.
func (m *model) remove(l *life, script string) {
	l.removed, l.removedAt = script, m.w.now()
	switch script {
	case "cancel", "remove", "replace", "purge":
		if by := m.w.redis.server.by; by != nil && strings.HasPrefix(by.name, "bridge") && slices.ContainsFunc(m.jobs, func(matches func(*life) bool) bool { return matches(l) }) {
			l.ends, l.isFixed = append(l.ends, "job"), false
		}
		// A cancel whose first run comes late, by a clock that was set back meanwhile, may meet the next message of the id.
		if len(l.ends) == 0 && !l.isLoose && (!*known || !m.was(m.w.now()-time.Minute, "clock")) {
			m.w.fail("I4: %s removed %s, which nobody had asked for", script, l)
		}
	}
}

func (m *model) claimsOf(tag string) *claimCount {
	name := tag
	if h := m.w.redis.server.by; h != nil {
		name += h.name
	}
	c, second := m.claims[name], m.w.now().Truncate(time.Second)
	if c == nil || c.second != second {
		c = &claimCount{second: second}
		m.claims[name] = c
	}
	return c
}

const (
	// claimsMost is how many claims of a shard in a second need no reason; for each
	// message that one of them takes there may be a few more.
	claimsMost     = 80
	claimsAMessage = 4
)

// claimed is told that a claim was run.
func (m *model) claimed(key string) {
	c := m.claimsOf(tagOf(key))
	if c.claims++; c.claims > claimsMost+claimsAMessage*c.of {
		m.w.fail("I9: %s has made %d claims of %s for %d messages in a second", m.w.redis.server.by.name, c.claims, tagOf(key), c.of)
	}
}

// meet looks, after each command, at what the command has left, and counts what is the matter
// at the same time.
func (m *model) meet() {
	for _, l := range m.left {
		if !l.hasCopy() && !l.isDead && !l.mayBeLate && !l.isLoose {
			m.w.fail("I4: a settle removed %s, which the broker has not stored", l)
		}
		if l.removed == "" {
			l.removed, l.removedAt = "settle", m.w.now()
		}
	}
	m.left = m.left[:0]
	if m.w.healed {
		return
	}
	for i, a := range conditions {
		if m.w.active[a] == 0 {
			continue
		}
		for _, b := range conditions[i+1:] {
			if m.w.active[b] > 0 {
				m.w.pairs[a+" × "+b]++
			}
		}
	}
}

func (l *life) String() string {
	return fmt.Sprintf("%s %s/%s of topic %s", l.body, l.key, l.id, l.topic)
}

func (l *life) hasCopy() bool {
	return slices.ContainsFunc(l.copies, func(c *copied) bool { return c.stored >= 0 })
}

func (l *life) firstCopy() time.Duration {
	first := time.Duration(-1)
	for _, c := range l.copies {
		if c.stored >= 0 && (first < 0 || c.stored < first) {
			first = c.stored
		}
	}
	return first
}

// begins is told that a message is handed to the broker.
func (m *model) begins(msg *message.Message) *copied {
	c := &copied{attempt: msg.Attempt, began: m.w.now(), stored: -1}
	l := m.byBody[string(msg.Body)]
	if l == nil || l.member != message.Member(msg.ID, msg.Key) || l.topic != msg.Topic {
		m.w.fail("I1: %s/%s of topic %s is published with the body %q", msg.Key, msg.ID, msg.Topic, msg.Body)
		return c
	}
	if l.isNever {
		m.w.fail("I11: %s is published though its call had failed", l)
	}
	if latest := m.w.redis.highest(l.began); !l.isLoose && len(l.dues) > 0 && latest.Before(slices.MinFunc(l.dues, time.Time.Compare)) {
		m.w.fail("I2: %s is published at %s, due at %s", l, m.stamp(latest), m.stamp(slices.MinFunc(l.dues, time.Time.Compare)))
	}
	if l.isOver == "cancelled" && !l.isLoose {
		m.w.fail("I11: %s is published though it was cancelled at %s", l, l.overAt)
	}
	if strings.HasPrefix(l.isOver, "maybe") && !l.isLoose && !m.was(l.overAt-2*time.Minute, "clock", "stall", "two holders") {
		m.w.fail("I11: a publish of %s begins though it was removed at %s", l, l.overAt)
	}
	l.copies = append(l.copies, c)
	return c
}

// stamp is an instant of Redis as the story tells instants.
func (m *model) stamp(t time.Time) string { return t.Sub(m.w.began).String() }

// stores is told that the broker has stored a copy.
func (m *model) stores(msg *message.Message, c *copied) {
	l := m.byBody[string(msg.Body)]
	if l == nil {
		return
	}
	if l.isRow && l.isOver == "cancelled" && !l.isLoose && !m.was(l.began, "clock", "database clock") {
		m.w.fail("I11: %s is stored, and its row has said at %s that it was cancelled in time", l, l.overAt)
	}
	for _, other := range l.copies {
		if other != c && other.stored >= 0 && other.attempt == c.attempt && !l.isLoose && !l.isAgain {
			m.w.fail("I3: two copies of %s have the attempt %d", l, c.attempt)
		}
	}
	if l.hasCopy() && !l.isLoose && !l.isAgain && l.unknowns == 0 && !m.was(l.began, faults...) {
		m.w.fail("I3: a second copy of %s though nothing was the matter", l)
	}
	c.stored = m.w.now()
}

// faults are what may make copies.
var faults = []string{"hang", "nack", "broker down", "redis down", "redis flaky", "clock", "crash", "drain", "two holders", "stall", "slow redis", "restore", "lost shard", "takeover"}

// outcome is told what the sink said.
func (m *model) outcome(msg *message.Message, o sinks.Outcome) {
	l := m.byBody[string(msg.Body)]
	if l == nil {
		return
	}
	switch o.Class {
	case sinks.Unknown:
		l.unknowns++
	case sinks.Retryable, sinks.Permanent:
		l.isRefused = true
	case sinks.Acknowledged, sinks.Unavailable:
	}
}

// lost is told that the keys of a shard were put back to an earlier state.
func (m *model) lost(tag string) {
	for _, l := range m.lives {
		if l.tag == tag || l.tag == "" && !l.isRow {
			l.isLoose, l.isFixed, l.isLost = true, false, false
		}
	}
	// What Redis has now is what it had then.
	for at := range m.current {
		if strings.HasPrefix(at, tag) {
			delete(m.current, at)
		}
	}
	for key, value := range m.w.redis.server.values {
		if h, ok := value.(*hash); ok && kind(key) == "msg" && tagOf(key) == tag {
			h.each(func(member, stored string) {
				if l := m.lifeOf(stored); l != nil {
					m.current[tag+member], l.isLoose = l, true
				}
			})
		}
	}
	m.changes[tag] = append(m.changes[tag], m.w.now())
}

// shards are the tags of those that Redis has.
func (m *model) shards() (numbers []int) {
	for key := range m.w.redis.server.values {
		if kind(key) == "meta" {
			if _, number, ok := strings.Cut(strings.Trim(tagOf(key), "{}"), ":"); ok {
				n, _ := strconv.Atoi(number)
				numbers = append(numbers, n)
			}
		}
	}
	slices.Sort(numbers)
	return numbers
}

// sound checks I6 of all shards.
func (m *model) sound() {
	for _, shard := range m.shards() {
		dump := m.w.redis.server.dump(queueName, shard)
		if dump.Meta["epoch"] == "" && m.was(m.w.now()-time.Minute, "lost shard") {
			continue // It is about to be made again.
		}
		if err := dump.Check(); err != nil {
			m.w.fail("I6: shard %d: %s", shard, strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	}
}

// overdue looks for messages that have been due for too long, by whatever clock Redis has.
func (m *model) overdue(patience time.Duration) {
	now := m.w.redis.clock().UnixMilli()
	for _, shard := range m.shards() {
		dump := m.w.redis.server.dump(queueName, shard)
		for _, member := range sortedKeys(dump.Due) {
			score := dump.Due[member] % (1 << 42)
			if late := time.Duration(now-score) * time.Millisecond; late > patience {
				m.w.fail("I7: %q of shard %d waits in slot %d, due for %s", member, shard, dump.Due[member]>>42, late)
			}
		}
	}
}

// waits is how many messages wait or are in flight.
func (m *model) waits() (n int) {
	for key, value := range m.w.redis.server.values {
		h, ok := value.(*hash)
		if !ok || kind(key) != "msg" {
			continue
		}
		h.each(func(string, string) { n++ })
	}
	return n
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// check looks at what has come of everything.
func (m *model) check() {
	for _, l := range m.lives {
		if l.accepted >= 0 && !l.isRow && !l.hasCopy() && !l.isDead && !l.isLoose && (l.removed == "" || l.removed == "settle" && !l.mayBeLate) {
			m.w.fail("I1: %s was lost", l)
		}
	}
	chains := map[[3]string][]*life{}
	for _, l := range m.lives {
		if l.key != "" && l.isFixed && !l.isLoose && l.hasCopy() && l.claimedAt >= 0 {
			c := [3]string{l.key, l.topic, l.tag}
			chains[c] = append(chains[c], l)
		}
	}
	for _, members := range chains {
		for _, a := range members {
			for _, b := range members {
				if m.isPassed(a, b) {
					m.w.fail("I15: %s (due %d, claimed %s, stored %s) was passed by %s (due %d, claimed %s, stored %s)",
						a, a.claimedDue, a.claimedAt, a.firstCopy(), b, b.claimedDue, b.claimedAt, b.firstCopy())
					return
				}
			}
		}
	}
}

// isPassed reports whether b was published before a, though it is due later, and nothing
// excuses that.
func (m *model) isPassed(a, b *life) bool {
	if a == b || a.claimedDue > b.claimedDue || a.claimedDue == b.claimedDue && a.member >= b.member {
		return false
	}
	if b.firstCopy() >= a.firstCopy() || a.isMoved || b.isMoved || a.isRefused || b.isRefused || a.isDead || b.isDead {
		return false
	}
	earliest := min(a.claimedAt, b.claimedAt)
	if a.cameAt >= earliest || b.cameAt >= earliest {
		return false // Not there yet when the other was claimed.
	}
	within := func(at time.Duration) bool { return at >= earliest && at <= a.firstCopy() }
	return !slices.ContainsFunc(m.changes[a.tag], within) && !slices.ContainsFunc(m.layouts, within)
}
