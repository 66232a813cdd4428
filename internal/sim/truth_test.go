package sim

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/store/job"
)

// state is where a message is, as its producers know it.
type state int

const (
	absent state = iota
	waiting
	inFlight
	dead
	states
)

// identity is one ID and Key, over all shards: what Redis has under it, and when it had what.
// So an answer can be held against all that was true while it was waited for, whoever else
// has changed it meanwhile, and whatever has got lost.
type identity struct {
	member string
	places []*place
	lives  []*life
	was    [states]time.Duration // until when it was so; negative: never

	// restored is when a failover or a wipe has changed it last, negative: never.
	restored time.Duration
	// cancels and reschedules are the one call of each verb that is under way, of all callers.
	cancels, reschedules *ask

	isOfRows bool // it is scheduled with the outbox
	isMet    bool // clients cancel it beside its rows
}

// place is an identity in one shard.
type place struct {
	of      *identity
	tag     string
	base    string // of the shard's keys
	now     facts
	claim   string // its token, in flight
	letter  string // the last dead letter that has left
	changed time.Duration

	isTouched, isDueSet bool // by this command
}

type facts struct {
	state state
	life  *life
	score int64
}

// promise is a due time as it was asked for: a delay, or an instant.
type promise struct {
	isDelay bool
	delay   time.Duration
	at      time.Time
	// maxWait, unless 0, bounds a delay: from the first of the messages that have replaced one another so.
	maxWait time.Duration
}

// ask is one call of a caller with all its repetitions: it may have one effect, while it is
// under way.
type ask struct {
	who        *identity
	by         string // whose
	verb       string
	life       *life // of a schedule
	promise    promise
	began      time.Duration
	isUnderWay bool
	effects    int
	removed    *life // by a cancel
	moved      *life // by a reschedule
	wasOut     bool  // a copy of it, then
}

func (m *model) identity(member string) *identity {
	id := m.identities[member]
	if id == nil {
		id = &identity{member: member, restored: -1}
		for s := range id.was {
			id.was[s] = -1
		}
		m.identities[member] = id
	}
	return id
}

func (m *model) place(key, member string) *place {
	base := key[:strings.LastIndexByte(key, ':')+1]
	at := base + member
	p := m.places[at]
	if p == nil {
		p = &place{of: m.identity(member), tag: tagOf(key), base: base, changed: -1}
		p.of.places = append(p.of.places, p)
		m.places[at] = p
	}
	return p
}

func (id *identity) is(s state) bool {
	for _, p := range id.places {
		if p.now.state != absent {
			if p.now.state == s {
				return true
			}
			if s == absent {
				return false
			}
		}
	}
	return s == absent
}

// wasSince reports whether it was in that state at any time since then.
func (id *identity) wasSince(s state, since time.Duration) bool {
	return id.is(s) || id.was[s] >= since
}

// put has the place have something else.
func (p *place) put(now facts, at time.Duration) {
	for s := range p.of.was {
		if p.of.is(state(s)) {
			p.of.was[s] = at
		}
	}
	for _, l := range []*life{p.now.life, now.life} {
		if l != nil {
			l.changed = at
		}
	}
	p.now, p.changed = now, at
}

// look is what Redis has there.
func (m *model) look(p *place) (f facts) {
	s, member := m.w.redis.server, p.of.member
	if stored, ok := s.field(p.base+"msg", member); ok {
		f.state, f.life = inFlight, m.lifeOf(member, stored)
		if z := s.sorted(p.base + "due"); z != nil {
			if score, ok := z.scores[member]; ok {
				f.state, f.score = waiting, int64(score)
			}
		}
		return f
	}
	if letter, ok := s.field(p.base+"deadmsg", member); ok {
		f.state, f.life = dead, m.lifeOf(member, letter[max(0, len(letter)-bodyLength):])
	}
	return f
}

// touch has a place be looked at when the command is over.
func (m *model) touch(e effect) *place {
	p := m.place(e.key, e.member)
	if !p.isTouched {
		p.isTouched = true
		m.touched = append(m.touched, p)
	}
	return p
}

// judge looks at what a command has done.
func (m *model) judge() {
	for _, p := range m.touched {
		before, now := p.now, m.look(p)
		isDueSet := p.isDueSet
		p.isTouched, p.isDueSet = false, false
		m.judgePlace(p, before, now, isDueSet)
		m.traces.changed(p, before, now)
		p.put(now, m.w.now())
	}
	m.touched = m.touched[:0]
}

func (m *model) judgePlace(p *place, before, now facts, isDueSet bool) {
	s := m.w.redis.server
	script, by := s.ran, "nobody"
	if s.by != nil {
		by = s.by.name
	}
	if before.life != nil && before.life != now.life {
		m.left(p, before, now, script, by)
	}
	if now.life != nil && before.life != now.life {
		m.came(p, before, now, script)
	} else if now.life != nil && script == "replace" && isDueSet {
		m.cameAgain(now)
	}
	switch {
	case script == "settle" && before.state == inFlight && now != before && p.claim != s.token:
		m.w.fail("I5: a settle of %s changes %s, which is in flight as one of %s", s.token, before.life, p.claim)
	case script == "claim" && before.state == waiting && now.state == inFlight:
		p.claim = s.token
	case script == "claim" && before.state == inFlight && now.state == inFlight && p.claim != s.token && isDueSet:
	case script == "reschedule" && isDueSet && now.life != nil:
		m.moved(p, before, now, by)
	case (script == "renew" || script == "remove") && before.state == inFlight && now != before:
		m.w.fail("I4: a %s of %s changes %s, which is in flight", script, by, before.life)
	case script == "renew" && isDueSet && now.life != nil && now.life == before.life: // As its row says.
		now.life.isDueAt(time.UnixMilli(now.score), m.w.now())
	case script == "settle" && before.state == dead, script == "reclaim" && before.state != inFlight && now != before:
		m.w.fail("I5: a %s changes %s, which is not in flight", script, before.life)
	}
	switch {
	case now.state == dead && before.state != dead && now.life != nil:
		now.life.isDead = true
		m.did["dead_lettered"]++
	case now.state == waiting && before.state == dead && now.life == before.life:
		m.did["redriven"]++
		m.keepsTries(p, script)
	}
}

// keepsTries judges that a message which comes back from the dead letters still tells how often it was tried, and whether a
// copy may be out.
func (m *model) keepsTries(p *place, script string) {
	_, counts, _ := strings.Cut(p.letter, ":")
	counts, _, _ = strings.Cut(counts, ":")
	was := strings.Fields(counts)
	text, _ := m.w.redis.server.field(p.base+"attempts", p.of.member)
	is := strings.Fields(text)
	if len(was) > 2 && was[1] != "0" && (len(is) < 3 || !slices.Equal(is[1:3], was[1:3])) {
		m.w.fail("I3: a %s of %s, which had the tries %q, leaves %q", script, p.now.life, counts, text)
	}
}

// clockWasSet reports whether what is known of clocks that are set excuses something, see
// docs/ARCHITECTURE.md, Known limits.
func (m *model) clockWasSet(since time.Duration) bool { return *known && m.was(since, "clock") }

// clockWasSetTwice: where it was set there and back, the span of a command that was under way meanwhile holds again.
func (m *model) clockWasSetTwice(since time.Duration) bool {
	at := m.events["clock"]
	return m.clockWasSet(since) && len(at) > 1 && at[len(at)-2] >= since
}

// came judges that a life is in Redis that was not.
func (m *model) came(p *place, before, now facts, script string) {
	l, at := now.life, m.w.now()
	switch script {
	case "schedule", "replace":
	case "put", "renew":
		m.rowCame(p, before, now, script)
		return
	default:
		m.w.fail("I6: a %s brings %s", script, l)
		return
	}
	if l.isFiring {
		m.firingCame(l, now.score)
	}
	since := at - 2*time.Minute
	switch {
	case l.isNever:
		m.w.fail("I11: %s was created though its call had failed", l)
	case l.ask != nil && !l.ask.isUnderWay && !m.clockWasSet(since):
		m.w.fail("I11: %s is created after its call was answered", l)
	case l.created > 0 && l.removed != "settle" && l.removed != "" && !m.clockWasSet(since):
		m.w.fail("I11: %s is brought back, which a %s has ended", l, l.removed)
	case l.isOnce && l.created > 0 && m.was(l.began, "wipe"): // It takes the record along.
		l.isLoose = true
	case l.isOnce && l.created > 0 && p.of.restored < l.cameAt:
		m.w.fail("I10: %s is created once more under its idempotency key", l)
	case l.created > 0 && l.removed == "" && p.of.restored < l.cameAt:
		m.w.fail("I3: %s is created twice", l)
	}
	if script == "schedule" && p.of.restored < since {
		for _, other := range p.of.places {
			if state := other.now.state; state != absent {
				m.w.fail("I10: %s is created beside %s", l, other.now.life)
			}
		}
	}
	l.took, l.first = before.life, m.w.redis.clock().Truncate(time.Microsecond)
	if l.promise.maxWait > 0 && before.state == waiting && before.life.promise.maxWait > 0 {
		l.first = before.life.first
	}
	m.did["scheduled"]++
	if text, ok := m.w.redis.server.field(p.base+"meta", "budget"); ok && !m.w.redis.server.isSecond && before.state == absent {
		most, _, _ := strings.Cut(text, " ")
		if n, err := strconv.Atoi(most); err == nil && len(m.w.redis.server.hash(p.base+"msg").at) > n {
			m.w.fail("budget: %s is created beyond %s", l, text)
		}
	}
	if l.created++; l.created > 1 {
		l.isAgain, l.isFixed, l.isDenied = true, false, false
	}
	if l.cameAt < 0 {
		l.cameAt = at
	}
	if l.ask != nil {
		l.ask.effects++
	}
	l.removed, l.tag = "", p.tag
	m.setDue(l, now.score, l.promise, at)
}

// cameAgain judges that a life takes its own place: a request is made once more, the record of
// whose idempotency key was lost.
func (m *model) cameAgain(now facts) {
	l := now.life
	if !l.isOnce || !m.was(l.began, "wipe") {
		m.w.fail("I10: %s is created once more", l)
	}
	m.did["scheduled"], m.did["replaced"] = m.did["scheduled"]+1, m.did["replaced"]+1
	l.isAgain, l.isFixed = true, false
	m.setDue(l, now.score, l.promise, m.w.now())
}

// setDue judges the due time that is in force from now on.
func (m *model) setDue(l *life, score int64, promised promise, at time.Duration) {
	due, least := time.UnixMilli(score), m.asked(l, promised)
	if late := due.Sub(least); late < 0 || late > 2*time.Millisecond {
		m.w.fail("I2: %s is due at %s, and %s was asked for", l, m.stamp(due), m.stamp(least))
	}
	l.isDueAt(due, at)
}

// asked is the due time that a run asks for at this time.
func (m *model) asked(l *life, promised promise) time.Time {
	if !promised.isDelay {
		return promised.at
	}
	due := m.w.redis.clock().Truncate(time.Microsecond).Add(promised.delay)
	if promised.maxWait > 0 && !l.first.IsZero() { // Else it was never created.
		if bound := l.first.Add(promised.maxWait); bound.Before(due) {
			return bound
		}
	}
	return due
}

func (l *life) isDueAt(due time.Time, at time.Duration) { l.dues = append(l.dues, dueSince{at, due}) }

// due is the due time in force.
func (l *life) due() dueSince {
	if len(l.dues) == 0 {
		return dueSince{}
	}
	return l.dues[len(l.dues)-1]
}

// dueAs is the due time in force or, of a message that was made again, or that a shard has lost, or of which a later attempt has or may have begun, one
// that it has had: its claim may be from before.
func (l *life) dueAs(due time.Time, isOverdue bool) dueSince {
	if i := slices.IndexFunc(l.dues, func(d dueSince) bool { return d.due.Equal(due) }); i >= 0 && (l.isAgain || l.isLoose || isOverdue) {
		return l.dues[i]
	}
	return l.due()
}

// dueThen is the due time that was in force at that time.
func (l *life) dueThen(at time.Duration) (due time.Time) {
	for _, d := range l.dues {
		if d.at <= at {
			due = d.due
		}
	}
	return due
}

type dueSince struct {
	at  time.Duration
	due time.Time
}

// left judges that a life is not in Redis any more.
func (m *model) left(p *place, before, now facts, script, by string) {
	l, id, at := before.life, p.of, m.w.now()
	isProducer := strings.HasPrefix(by, "producer")
	switch {
	case script == "settle":
		m.did["ended"]++
	case m.w.redis.server.isPurge:
		m.did["purged"]++
	case script == "cancel":
		m.did["cancelled"]++
	case script == "replace":
		m.did["replaced"]++
	}
	switch {
	case script == "settle":
		m.settles = append(m.settles, l)
	case script == "replace" && now.life != nil: // It is judged by the other, which came.
		l.isFixed = false
		if before.state == inFlight {
			m.w.fail("I11: %s replaces %s, which is in flight", now.life, l)
		}
	case script == "cancel" && before.state == inFlight:
		m.w.fail("I11: a cancel of %s removes %s, which is in flight", by, l)
	case id.isOfRows:
		m.rowLeft(l, script, by)
	case script == "cancel" && l.isFiring && m.w.redis.server.isNever: // Its producer may cancel a firing at the same time, too.
		m.firingLeft(l, by)
	case script == "cancel" && isProducer && id.cancels != nil && id.cancels.isUnderWay && id.cancels.by == by:
		id.cancels.effects++
		id.cancels.removed = l
	case script == "cancel" && isProducer && m.sweep(l, by):
	case script == "cancel" && l.isFiring:
		m.firingLeft(l, by)
	case script == "cancel" && isProducer:
		if !m.clockWasSet(at - 2*time.Minute) {
			m.w.fail("I11: a cancel of %s removes %s, after it was answered", by, l)
		}
	case script == "cancel" && m.isOfAJob(l, job.Cancel, job.Purge):
		l.isFixed = false
	default:
		m.w.fail("I4: a %q of %s removed %s, which nobody had asked for", script, by, l)
	}
	l.removed, l.removedAt = script, at
}

func (m *model) isOfAJob(l *life, verbs ...job.Verb) bool {
	return slices.ContainsFunc(m.jobs, func(j *jobAsk) bool {
		return slices.Contains(verbs, j.verb) && !j.isOver && j.matches(l) && (l.cameAt <= j.began+jobMargin || m.clockWasSet(l.cameAt-time.Minute))
	})
}

// moved judges that a message has another due time.
func (m *model) moved(p *place, before, now facts, by string) {
	l, id, at := now.life, p.of, m.w.now()
	l.isFixed = false
	if before.state == inFlight {
		m.w.fail("I11: a reschedule of %s moves %s, which is in flight", by, l)
	}
	if id.isOfRows {
		m.rowMoved(p, l, time.UnixMilli(now.score), at, by)
		return
	}
	if !strings.HasPrefix(by, "producer") {
		if !m.isOfAJob(l, job.Reschedule, job.Redrive) {
			m.w.fail("I11: %s moves %s, which nobody had asked for", by, l)
		}
		l.isDueAt(time.UnixMilli(now.score), at)
		return
	}
	a := id.reschedules
	if a == nil || !a.isUnderWay || a.by != by {
		if !m.clockWasSet(at - 2*time.Minute) {
			m.w.fail("I11: a reschedule of %s moves %s, after it was answered", by, l)
		}
		l.isDueAt(time.UnixMilli(now.score), at)
		return
	}
	a.effects++
	a.moved, a.wasOut = l, l.hasCopy()
	m.setDue(l, now.score, a.promise, at)
}

// restored is told that a shard, or with "" all of Redis, is as it was at that time.
func (m *model) restored(tag string, then time.Duration) {
	now := m.w.now()
	for _, at := range sortedKeys(m.places) {
		p := m.places[at]
		if tag != "" && p.tag != tag {
			continue
		}
		if p.changed < then {
			if p.now.state == inFlight {
				// Its claim may again hold messages that were settled, so the next settle of it is stale.
				m.traces.leaves(p.of, "a claim restored")
			}
			continue
		}
		p.of.restored = now
		m.traces.leaves(p.of, "lost by Redis")
		for _, l := range p.of.lives {
			if l.changed >= then {
				l.isLost = l.isRow && then < 0 && (!l.isLoose || l.isLost)
				l.isLoose, l.isFixed, l.isDenied, l.removed = true, false, false, ""
			}
		}
		p.put(m.look(p), now)
		p.claim = ""
		if l := p.now.life; l != nil {
			l.isDueAt(l.dueThen(then), now)
		}
	}
	if z := m.w.redis.server; z != nil {
		m.readClaims(tag)
	}
	for shard := range m.changes {
		if tag == "" || shard == tag {
			m.changes[shard] = append(m.changes[shard], now)
		}
	}
	if tag != "" && m.changes[tag] == nil {
		m.changes[tag] = append(m.changes[tag], now)
	}
}

// readClaims takes which claim each message is in from what Redis has.
func (m *model) readClaims(tag string) {
	for key, value := range m.w.redis.server.values {
		h, ok := value.(*hash)
		if !ok || kind(key) != "claims" || tag != "" && tagOf(key) != tag {
			continue
		}
		h.each(func(token, packed string) {
			for packed != "" {
				length, rest, _ := strings.Cut(packed, ":")
				_, rest, _ = strings.Cut(rest, ":")
				n, err := strconv.Atoi(length)
				if err != nil || n > len(rest) {
					return
				}
				m.place(key, rest[:n]).claim, packed = token, rest[n:]
			}
		})
	}
}

// begin has a call be under way.
func (m *model) begin(a *ask) {
	a.isUnderWay, a.began = true, m.w.now()
	m.traces.begins(a)
}

// answered judges what one call of a verb that changes a message was answered.
func (m *model) answered(verb string, a *ask, err error) {
	a.isUnderWay = false
	m.traces.answered(a, err)
	id := a.who
	fail := func(format string, args ...any) {
		m.w.fail("I11: %s of %q says %q: %s", verb, id.member, textOf(err), fmt.Sprintf(format, args...))
	}
	// What a failover has taken back may be done again, or not.
	if id.restored >= a.began {
		return
	}
	isClock := m.clockWasSet(a.began - time.Minute)
	switch {
	case errors.Is(err, delay.ErrUnknown), errors.Is(err, delay.ErrForgotten):
		return
	case delay.Done(err):
		if a.effects == 0 && !isClock {
			fail("nothing was done")
		}
		if a.removed != nil && !errors.Is(err, delay.ErrMaybePublished) && !isClock {
			for l := a.removed; l != nil && !l.isLoose; l = l.took { // What it has replaced had its id.
				if l.isDenied = true; l.hasCopy() {
					fail("a copy of %s is out", l)
				}
			}
		}
		if a.wasOut && !a.moved.isLoose && !errors.Is(err, delay.ErrMaybePublished) && !isClock {
			fail("a copy of %s was out before", a.moved)
		}
	default:
		if a.effects > 0 && !isClock {
			fail("it was done")
		}
		switch {
		case errors.Is(err, delay.ErrFull) && !m.was(a.began, "limit") && !m.isLimited():
			fail("there is no budget")
		case errors.Is(err, delay.ErrNotFound) && !id.wasSince(absent, a.began) && !m.was(a.began-time.Minute, "fence lost"):
			fail("it is there all the time")
		case errors.Is(err, delay.ErrTooLate) && !id.wasSince(inFlight, a.began):
			fail("it was not in flight")
		case errors.Is(err, delay.ErrDuplicate) && id.is(absent) && !slices.ContainsFunc(id.was[waiting:], func(at time.Duration) bool { return at >= a.began }):
			fail("nothing was there")
		}
	}
	if a.effects > 1 && !isClock {
		fail("it was done %d times", a.effects)
	}
}

// isLimited reports whether a shard has a budget: a failover may have brought one back.
func (m *model) isLimited() bool {
	for key, value := range m.w.redis.server.values {
		if h, ok := value.(*hash); ok && kind(key) == "meta" {
			if text, _ := h.get("budget"); text != "" {
				return true
			}
		}
	}
	return false
}

func textOf(err error) string {
	if err == nil {
		return "done"
	}
	return short(err)
}

// sweep is a call that cancels many.
type sweep struct {
	by      string // whose
	matches func(*life) bool
	removed int
}

// sweep reports whether a call that cancels many may have removed it.
func (m *model) sweep(l *life, by string) bool {
	for _, s := range m.sweeps {
		if s.by == by && s.matches(l) {
			s.removed++
			return true
		}
	}
	return false
}

// jobMargin is by how much a job may mean what came after its start: clocks of nodes differ.
const jobMargin = 2 * time.Second

// jobAsk is a job that was asked for: it means what was there when it began, until it ends.
type jobAsk struct {
	verb    job.Verb
	matches func(*life) bool
	began   time.Duration // at the latest
	isOver  bool
}

// slotOf is the slot of a score.
func slotOf(score float64) (slot, due int64) {
	return int64(score) >> 42, int64(math.Mod(score, 1<<42))
}
