package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/poller"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// model is what must be true. It is told what callers asked and were answered, what Redis'
// commands have done to which message, and what the broker was given and has stored; all by
// the world's events, so that none of it is lost or late. What Redis has is in truth_test.go.
type model struct {
	w          *world
	lives      []*life
	byBody     map[string]*life
	identities map[string]*identity
	places     map[string]*place // by the key, without its end, and the member
	touched    []*place          // by this command
	soundAt    int               // after so many changes
	settles    []*life           // that this command, a settle, has removed
	holders    map[string]string
	changes    map[string][]time.Duration // of holders, by the tag of the shard
	layouts    []time.Duration            // when the layout was changed
	events     map[string][]time.Duration // when something was the matter, or ceased to be
	jobs       []*jobAsk
	sweeps     []*sweep         // that are under way
	counted    map[string]int64 // by this command
	did        map[string]int64 // the same, as it should be
	claims     map[string]*claimCount
	rows       map[int64]*simRow        // of the outbox, as they were committed
	ofRow      map[int64]*life          // the messages of rows, of those that have gone, too
	ailed      map[string]time.Duration // when something was last the matter with a topic
	series     map[string]*series       // recurring schedules, by name
	editions   map[string]*edition      // of these, by body
	firings    map[string]*life         // by member and body
	ranFirst   map[string]int64         // by the token of a call: when its first run took effect, by Redis' clock
	rule       func(reply []any)        // of the script that runs, nil if it has none
	rated      []rated                  // the rates
	handed     []time.Duration          // when a message was handed to the broker
	traces     *recorder
}

// life is one message from its schedule to its end: another one of the same identity is
// another life. Its body names it.
type life struct {
	body, id, key, topic string
	member               string
	tags                 []string
	promise              promise
	ask                  *ask // of its schedule

	began      time.Duration // the first call
	accepted   time.Duration // answered; negative: not
	isNever    bool          // it was certainly not created
	created    int           // so often
	took       *life         // the one whose place it took
	first      time.Time     // from when a bound counts, by Redis' clock
	dues       []dueSince    // the last one is in force
	isFixed    bool          // its due time was never changed
	isLoose    bool          // a failover or a wipe has taken back some of it
	mayBeLate  bool          // it may be dropped or buried as late
	isOnce     bool          // under an idempotency key
	isDenied   bool          // a caller was told that no copy is out, nor will be
	cameAt     time.Duration // in Redis; negative: never
	changed    time.Duration // last, in Redis
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

	isFiring bool     // of a recurring schedule
	edition  *edition // its own; nil where it is only there to be cancelled

	isRow      bool        // it was scheduled with the outbox
	row        int64       // of the outbox, once that is committed
	wants      []time.Time // the due times that rows, and jobs, have asked for
	ends       []string    // who may have ended it: other rows, clients, jobs
	rowEnd     string      // as its row tells it
	rowEndedAt time.Duration
	isOfJob    bool // a job has moved it
	isLost     bool // Redis has lost it, and nothing came back from before: a row's message is put back, and marked

	revision int64           // the last reschedule by a row that was done
	isMarked bool            // from the start: a copy may have been out then
	takenBy  []int64         // rows by which the transaction of its row has done something about it
	wasOutAs map[string]bool // a copy was out when it was moved to that token
}

// copied is one handing over to the broker.
type copied struct {
	of      *life
	attempt int
	began   time.Duration
	stored  time.Duration // negative: not
}

// rated are rates from then on.
type rated struct {
	at time.Duration
	poller.Rates
}

// claimCount is how many claims one host has made of one shard in a second.
type claimCount struct {
	second time.Duration
	claims int
	of     int // messages
}

func newModel(w *world) *model {
	m := &model{
		w: w, byBody: map[string]*life{}, identities: map[string]*identity{}, places: map[string]*place{}, holders: map[string]string{},
		changes: map[string][]time.Duration{}, events: map[string][]time.Duration{}, claims: map[string]*claimCount{}, ailed: map[string]time.Duration{}, ranFirst: map[string]int64{},
		counted: map[string]int64{}, did: map[string]int64{}, rows: map[int64]*simRow{}, ofRow: map[int64]*life{},
		series: map[string]*series{}, editions: map[string]*edition{}, firings: map[string]*life{},
	}
	m.traces = newRecorder(m)
	return m
}

// bodyLength is how long the bodies are: "#" and a number.
const bodyLength = 8

// asks makes a life that a caller is about to schedule.
func (m *model) asks(id, key, topic string, tags []string) *life {
	l := &life{
		body: fmt.Sprintf("#%07d", len(m.lives)+1), id: id, key: key, topic: topic, member: message.Member(id, key), tags: tags,
		began: m.w.now(), accepted: -1, claimedAt: -1, cameAt: -1, isFixed: true, wasOutAs: map[string]bool{},
	}
	m.lives = append(m.lives, l)
	m.byBody[l.body] = l
	who := m.identity(l.member)
	who.lives = append(who.lives, l)
	if who.isMet {
		l.ends = append(l.ends, "cancel")
	}
	l.ask = &ask{who: who, verb: "schedule", life: l}
	return l
}

// lifeOf is the life of an identity of which this is stored, or its body.
func (m *model) lifeOf(member, stored string) *life {
	body := stored[max(0, len(stored)-bodyLength):]
	if l := m.byBody[body]; l != nil {
		return l
	}
	return m.firing(member, stored, body)
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
	if *watched != "" && m.w.log != nil && strings.HasSuffix(e.member, *watched) {
		by := ""
		if h := m.w.redis.server.by; h != nil {
			by = h.name
		}
		slot, due := slotOf(e.score)
		m.w.log("%14s     %s by %s: %s of %q, gone %v, score %d in slot %d, %.60q", m.w.now(), script, by, e.key, e.member, e.isGone, due, slot, e.value)
	}
	switch e.what {
	case "counter":
		m.counted[e.member] += int64(e.score)
	case "holder":
		m.held(tag, e)
	case "epoch":
		m.fenced(tag, e.member, e.value)
	case "msg", "deadmsg":
		if p := m.touch(e); e.isGone && e.what == "deadmsg" {
			p.letter = e.value
		}
	case "attempts":
		p := m.touch(e)
		fields := strings.Fields(e.value)
		if l := p.now.life; l != nil && !e.isGone && (len(fields) > 4 || len(fields) > 0 && fields[0] != "0") {
			l.isRefused = true
		}
	case "due":
		p := m.touch(e)
		p.isDueSet = p.isDueSet || !e.isGone
		l := p.now.life
		if l == nil || !e.isGone || script != "claim" {
			return
		}
		m.claimsOf(tag).of++
		_, due := slotOf(e.score)
		if l.claimedAt < 0 {
			l.claimedAt, l.claimedDue = now, due
		}
		l.isMoved = l.isMoved || due != l.claimedDue
	}
}

// fenced is told that a shard has another epoch: of one life of the queue no older one.
func (m *model) fenced(tag, was, is string) {
	before, lifeBefore, _ := strings.Cut(was, "-")
	after, lifeAfter, _ := strings.Cut(is, "-")
	lifeBefore, _, _ = strings.Cut(lifeBefore, "-")
	lifeAfter, _, _ = strings.Cut(lifeAfter, "-")
	old, _ := strconv.Atoi(before)
	if now, _ := strconv.Atoi(after); lifeBefore == lifeAfter && now < old {
		m.w.fail("§4: the fence of %s is lowered from %s to %s", tag, was, is)
	}
}

// marked judges that a settle which came too late has marked what lives on. Where a wipe or a loss has taken message
// and trace, a call of a name makes it again in what may be another shard, where nobody knows of the first copy.
func (m *model) marked() {
	s := m.w.redis.server
	for i := 2; s.ran == "mark" && i+1 < len(s.argv); i += 2 {
		for _, p := range m.identity(s.argv[i]).places {
			stored, _ := s.field(p.base+"msg", s.argv[i])
			counts, _ := s.field(p.base+"attempts", s.argv[i])
			fields, isOurs := strings.Fields(counts), len(stored) > 30 && stored[14:30] == s.argv[i+1]
			if isOurs && (len(fields) < 3 || fields[2] == "0") && (p.base+"msg" == s.keys[0] || p.now.life == nil || !m.was(p.now.life.began, "wipe", "lost shard")) {
				m.w.fail("I5: %s was published, its settle came too late, and it is not marked", p.now.life)
			}
		}
	}
}

// held is told that a shard has a holder, or, where the command was a DEL, none.
func (m *model) held(tag string, e effect) {
	name, _, _ := strings.Cut(e.value, "|")
	was := m.holders[tag]
	if s := m.w.redis.server; name == "" && s.script == "handover" && s.by != nil && !strings.HasPrefix(was, s.by.name+"/") {
		m.w.fail("§5: %s gives up the lease of %s", s.by.name, was)
	}
	m.holders[tag] = name
	if was == name || name == "" {
		return
	}
	switch {
	case was == "":
	case m.w.healed: // The end of a trouble may show only now.
		m.happened("takeover")
	default:
		m.w.during("takeover", lease, func() {}, func() {})
		m.w.tookOver(m.w.redis.server.by)
	}
	m.changes[tag] = append(m.changes[tag], m.w.now())
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

// ran looks at what a command has left.
func (m *model) ran(reply any) {
	m.keeps(reply)
	m.judge()
	m.traces.ran(list(reply))
	m.settled(reply)
	m.marked()
	m.counts()
	m.settles = m.settles[:0]
	clear(m.counted)
	clear(m.did)
}

// settled judges what a settle has removed: it was published, or was too late.
func (m *model) settled(reply any) {
	s := m.w.redis.server
	if s.ran == "settle" && reply == int64(1) && !s.isSecond && m.counted["stale_settles"] != 1 {
		m.w.fail("I14: a stale settle of %s is not counted", s.token)
	}
	stored, twice := int64(0), int64(0)
	for _, l := range m.settles {
		switch n := l.stored(); {
		case n > 1 && !l.isLoose:
			twice++
			fallthrough
		case n > 0:
			stored++
		case !l.mayBeLate:
			m.w.fail("I4: a settle removed %s, which the broker has not stored", l)
		}
	}
	if published := m.counted["published"]; published > stored {
		m.w.fail("I6: a settle counts %d as published, and the broker has stored %d of them", published, stored)
	}
	if suspected := m.counted["suspected_duplicates"]; suspected < twice {
		m.w.fail("I14: %d suspected duplicates are counted, and %d messages were stored twice", suspected, twice)
	}
}

// counts judges what a command has counted.
func (m *model) counts() {
	switch m.w.redis.server.ran {
	case "schedule", "replace", "cancel", "reschedule", "settle":
	default:
		return
	}
	m.counted["ended"] = m.counted["published"] + m.counted["dropped"]
	for _, name := range []string{"scheduled", "replaced", "cancelled", "purged", "redriven", "dead_lettered", "ended"} {
		if m.counted[name] != m.did[name] {
			m.w.fail("I14: a %s has counted %d as %s, and has done so with %d", m.w.redis.server.ran, m.counted[name], name, m.did[name])
		}
	}
}

// meet counts what is the matter at the same time.
func (m *model) meet() {
	if m.w.healed {
		return
	}
	for _, pair := range m.w.meet {
		m.w.pairs[pair]++
	}
}

func (l *life) String() string {
	return fmt.Sprintf("%s %s/%s of topic %s", l.body, l.key, l.id, l.topic)
}

func (l *life) hasCopy() bool { return l.stored() > 0 }

// stored is how many copies the broker has.
func (l *life) stored() (n int) {
	for _, c := range l.copies {
		if c.stored >= 0 {
			n++
		}
	}
	return n
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
func (m *model) begins(msg *message.Message, isFirst bool) *copied {
	c := &copied{attempt: msg.Attempt, began: m.w.now(), stored: -1}
	l := m.lifeOf(message.Member(msg.ID, msg.Key), string(msg.Body))
	if l == nil || l.member != message.Member(msg.ID, msg.Key) || l.topic != msg.Topic {
		m.w.fail("I1: %s/%s of topic %s is published with the body %q", msg.Key, msg.ID, msg.Topic, msg.Body)
		return c
	}
	if l.isNever {
		m.w.fail("I11: %s is published though its call had failed", l)
	}
	since := m.w.now() - 2*time.Minute
	// Whoever was held up with the message goes on with it as it was, whatever has become of a later attempt.
	isOverdue := slices.ContainsFunc(l.copies, func(other *copied) bool { return other.attempt > msg.Attempt })
	// A sink hands on what is behind in its chain, also while another instance has the shard. Whoever has moved it meanwhile was told
	// that a copy may be out.
	isBehind := !isFirst && m.was(since, "takeover")
	if d := l.dueAs(msg.DueAt, isOverdue || isBehind && m.isMarked(l)); !d.due.IsZero() && !m.clockWasSet(since) {
		if latest := m.w.redis.highest(d.at); latest.Before(d.due) {
			m.w.fail("I2: %s is published at %s, due at %s", l, m.stamp(latest), m.stamp(d.due))
		}
		if !msg.DueAt.Equal(d.due) {
			m.w.fail("I2: %s is published as due at %s, and is due at %s", l, m.stamp(msg.DueAt), m.stamp(d.due))
		}
	}
	switch {
	case l.isDenied:
		m.w.fail("I11: a publish of %s begins, of which it was said that no copy is out", l)
	case l.removed != "" && l.removed != "settle" && !l.isLoose && !isOverdue && !isBehind && !m.clockWasSet(since):
		m.w.fail("I11: a publish of %s begins, which a %s has removed at %s", l, l.removed, l.removedAt)
	}
	m.isPrompt(l, isFirst)
	m.handed = append(m.handed, m.w.now())
	c.of, l.copies = l, append(l.copies, c)
	return c
}

// isMarked reports whether Redis has it, if it has it, as one of which a copy may be out.
func (m *model) isMarked(l *life) bool {
	for _, p := range m.identity(l.member).places {
		if p.now.life == l && p.now.state == waiting {
			counts, _ := m.w.redis.server.field(p.base+"attempts", l.member)
			fields := strings.Fields(counts)
			return len(fields) > 2 && fields[2] != "0"
		}
	}
	return true
}

// promptness is how late a message may be because of other routes. A shard that takes fewer messages than the sink's
// window holds cannot tell one that hangs from a slow broker: it waits for the publish timeout, ten seconds.
func (m *model) promptness() time.Duration {
	if most := m.w.plan.batch * m.w.plan.inFlight; most < leastWindow {
		return 15 * time.Second
	}
	return 3 * time.Second
}

// leastWindow is how many messages a sink's window holds at the least.
const leastWindow = 256

// isPrompt looks whether other routes delay one that is well, where nothing else is the matter.
func (m *model) isPrompt(l *life, isFirst bool) {
	w, now := m.w, m.w.now()
	if w.broker.modes[l.topic] != "" {
		m.ailed[l.topic] = now
	}
	if !w.plan.isOfSink || len(l.copies) > 0 || !isFirst || l.isLoose || l.isDead {
		return
	}
	since := max(l.cameAt, l.due().at, l.due().due.Sub(w.began))
	if at, ok := m.ailed[l.topic]; ok && at > since-30*time.Second || slices.ContainsFunc(m.changes[l.tag], func(at time.Duration) bool { return at > since-30*time.Second }) {
		return
	}
	byRate, isRated := m.byRate(l.topic, since)
	if late := now - since; !isRated && late > m.promptness()+byRate && !w.isNight {
		w.fail("I8: %s is published %s late, and only other topics ail", l, late)
	}
}

// byRate is how long the queue's rates may keep a message that came then: three times as long as all that was handed over since
// takes by the least of them, because a shard has its part of a rate for a moment, needed or not. isRated: the topic has a rate of its own.
func (m *model) byRate(topic string, since time.Duration) (takes time.Duration, isRated bool) {
	least := 0
	for i, r := range m.rated {
		if i+1 < len(m.rated) && m.rated[i+1].at < since-m.promptness() {
			continue
		}
		if isRated = isRated || r.Topics[topic] > 0; r.Messages > 0 && (least == 0 || r.Messages < least) {
			least = r.Messages
		}
	}
	from, _ := slices.BinarySearch(m.handed, since)
	if least > 0 {
		takes = 3 * time.Duration(1+len(m.handed)-from) * time.Second / time.Duration(least)
	}
	return takes, isRated
}

// stamp is an instant of Redis as the story tells instants.
func (m *model) stamp(t time.Time) string { return t.Sub(m.w.began).String() }

// stores is told that the broker has stored a copy.
func (m *model) stores(by *host, msg *message.Message, c *copied) {
	l := c.of
	if l == nil {
		return
	}
	for _, other := range l.copies {
		if other != c && other.stored >= 0 && other.attempt == c.attempt && !l.isLoose && !l.isAgain {
			m.w.fail("I3: two copies of %s have the attempt %d", l, c.attempt)
		}
	}
	if l.hasCopy() && !l.isLoose && !l.isAgain && l.unknowns == 0 && !m.was(l.began, faults...) {
		m.w.fail("I3: a second copy of %s though nothing was the matter", l)
	}
	if l.isDenied {
		m.w.fail("I11: a copy of %s is stored, of which it was said that no copy is out", l)
	}
	c.stored = m.w.now()
	m.traces.stored(l, by, msg.DueAt)
}

// faults are what may make copies.
var faults = []string{"hang", "nack", "broker down", "redis down", "redis flaky", "clock", "crash", "drain", "two holders", "stall", "slow redis", "restore", "lost shard", "takeover"}

// outcome is told what the sink said.
func (m *model) outcome(msg *message.Message, o sinks.Outcome) {
	l := m.lifeOf(message.Member(msg.ID, msg.Key), string(msg.Body))
	if l == nil {
		return
	}
	if o.Class != sinks.Acknowledged {
		m.ailed[l.topic] = m.w.now()
	}
	switch o.Class {
	case sinks.Unknown:
		l.unknowns++
	case sinks.Retryable, sinks.Permanent:
		l.isRefused = true
	case sinks.Acknowledged, sinks.Unavailable:
	}
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

// sound checks I6 of all shards, where anything has changed since the last time.
func (m *model) sound() {
	if m.soundAt == m.w.redis.server.changes {
		return
	}
	m.soundAt = m.w.redis.server.changes
	for _, shard := range m.shards() {
		dump := m.w.redis.server.dump(queueName, shard)
		isEarly := len(m.w.plan.fleet.all) == 0 || m.was(m.w.now()-time.Minute, "lost shard", "no bridge")
		if dump.Meta["epoch"] == "" && (len(dump.Msg) == 0 && m.events["wipe"] != nil || m.events["lost shard"] != nil && isEarly) {
			continue // What a bridge counts that does not know yet that Redis was wiped, or a shard, or that ends.
		}
		if err := dump.Check(); err != nil {
			m.w.fail("I6: shard %d: %s", shard, strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	}
}

// overdue looks for messages that have been due for too long, by whatever clock Redis has. A row that has waited
// for another message of its id may come long after it was due.
func (m *model) overdue(patience time.Duration) {
	now := m.w.redis.clock()
	for _, shard := range m.shards() {
		dump := m.w.redis.server.dump(queueName, shard)
		for _, member := range sortedKeys(dump.Due) {
			slot, ms := message.SplitScore(dump.Due[member])
			var stored message.Message
			if err := stored.Decode(dump.Msg[member]); err != nil {
				m.w.fail("I7: %q of shard %d cannot be read: %s", member, shard, err)
			}
			if late := min(now.Sub(time.UnixMilli(ms)), now.Sub(stored.ScheduledAt)); late > patience {
				m.w.fail("I7: %q of shard %d waits in slot %d, due for %s", member, shard, slot, late)
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
	// What went back and what is parked may pass each other where the clock is set, see Known limits.
	isClock := *known && slices.ContainsFunc(m.events["clock"], within)
	return !slices.ContainsFunc(m.changes[a.tag], within) && !slices.ContainsFunc(m.layouts, within) && !isClock
}
