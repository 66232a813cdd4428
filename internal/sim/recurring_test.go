package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/job"
	storerecurring "github.com/delaybridge/delaybridge/internal/engine/store/recurring"
	planner "github.com/delaybridge/delaybridge/internal/recurring"
)

// series is what callers have asked of the recurring schedule of a name.
type series struct {
	name    string
	changes []*seriesCall      // in the order in which they began
	made    map[string][]*life // firings, by id
}

// seriesCall is one call about a recurring schedule.
type seriesCall struct {
	verb   string        // set, pause, resume, delete
	set    *edition      // of a set
	began  time.Duration // and ended: negative while it is under way
	ended  time.Duration
	isDone bool // it was answered that it is done, or that there is no such schedule
	isNone bool // the latter
}

// edition is what a recurring schedule was set to; its body names it.
type edition struct {
	delay.Recurring

	of    *series
	every time.Duration
	dues  map[string]int64 // of firings, by id
}

// newPlanner makes what plans firings in a bridge.
func (b *bridge) newPlanner(logger *slog.Logger) *planner.Planner {
	durable := store.Durability{}
	if b.w.plan.durable {
		durable = store.ByReplicas(1)
	}
	return planner.New(queueName, storerecurring.New(b.queue, durable), b.isFirst, noObserver{}, logger)
}

// RecurringSchedules implements [planner.Observer].
func (noObserver) RecurringSchedules(string, int) {}

// RecurringFirings implements [planner.Observer].
func (noObserver) RecurringFirings(string, int64, int64) {}

// recurrings has a few callers set a recurring schedule, and pause, resume, change and delete it.
func (w *world) recurrings(d *decision, random *rand.Rand, lasts time.Duration) {
	until := w.now() + lasts
	of := &series{name: fmt.Sprintf("n%d", random.IntN(3)), made: map[string][]*life{}}
	if known := w.model.series[of.name]; known != nil {
		of = known
	}
	w.model.series[of.name] = of
	if random.IntN(2) == 0 { // Of a call, a run comes when others have been answered.
		const onceMore = 4
		w.during("redis flaky", lasts, func() { w.redis.isFlaky, w.redis.focus = true, onceMore }, func() { w.redis.isFlaky = false })
	}
	for i := range 1 + random.IntN(3) {
		a := &actor{w, fmt.Sprintf("recurring%d-%d", d.index, i), rand.New(rand.NewPCG(d.seed, uint64(i)))}
		w.after(between(random, time.Millisecond, time.Second), "", func() {
			w.plan.actors.Go(func() {
				last, was := a.edition(of), ""
				for a.w.now() < until && !a.w.healed && !a.w.isOver {
					c := &seriesCall{verb: []string{"set", "set", "set", "pause", "resume", "resume", "delete", "delete"}[a.random.IntN(8)]}
					if then := map[string]string{"set": "delete", "pause": "resume"}[was]; then != "" && a.chance(3) { // It was tried out.
						c.verb = then
					}
					if c.verb == "set" {
						if a.chance(2) { // Else again, as a program does each time that it starts.
							last = a.edition(of)
						}
						c.set = last
					}
					_ = a.changes(c, of) // The series has it.
					if was = c.verb; was == "pause" || was != "set" && a.chance(3) {
						// Firings fall into it, those that jitter puts off, too.
						a.rest(between(a.random, 2*time.Second, 20*time.Second))
					}
					a.rest(between(a.random, 10*time.Millisecond, 10*time.Second))
					if a.chance(3) {
						a.touchesFiring(of)
					}
				}
			})
		})
	}
}

// touchesFiring has an operator move the latest firing that waits, or skip it.
func (a *actor) touchesFiring(of *series) {
	s := &story{actor: a, p: a.w.plan.producers[a.random.IntN(len(a.w.plan.producers))]}
	a.in("looks for a firing", func() {
		for _, id := range sortedKeys(of.made) {
			if l := of.made[id][len(of.made[id])-1]; l.removed == "" && !l.hasCopy() {
				s.id, s.key = l.id, l.key
			}
		}
	})
	switch {
	case s.id == "":
	case a.chance(3):
		s.cancel()
	default:
		s.reschedule()
	}
}

// edition makes another edition of a schedule.
func (a *actor) edition(of *series) *edition {
	e := &edition{of: of, every: time.Duration(1+a.random.IntN(20)) * time.Second, dues: map[string]int64{}}
	if a.chance(3) { // A firing is due while somebody changes the schedule, and the next edition has one at that time, too.
		e.every = time.Second
	}
	e.Recurring = delay.Recurring{
		Name: of.name, Cron: "@every " + e.every.String(),
		Missed:  []delay.Missed{delay.SkipMissed, delay.OnceMissed, delay.CatchUpMissed}[a.random.IntN(3)],
		Message: delay.Message{Topic: simTopics[a.random.IntN(len(simTopics))]},
	}
	if e.Missed == delay.CatchUpMissed {
		e.CatchUp = 1 + a.random.IntN(20)
	}
	if a.chance(2) {
		e.Message.Key = fmt.Sprintf("k%d", a.random.IntN(4))
	}
	if a.chance(2) {
		e.Jitter = []time.Duration{e.every, time.Duration(1+a.random.IntN(999)) * time.Millisecond}[a.random.IntN(2)]
	}
	a.in("makes an edition", func() {
		if a.chance(4) {
			e.Until = a.w.redis.clock().Add(between(a.random, 2*time.Second, time.Minute))
		}
		m := a.w.model
		body := fmt.Sprintf("~%07d", len(m.editions)+1)
		e.Message.Body, m.editions[body] = []byte(body), e
	})
	return e
}

// changes makes a call about a schedule, once. That there is none is no error.
func (a *actor) changes(c *seriesCall, of *series) error {
	client := a.w.plan.producers[a.random.IntN(len(a.w.plan.producers))].clients[delay.Reject]
	ctx, cancel := a.call()
	defer cancel()
	a.in("begins", func() {
		c.began, c.ended = a.w.now(), -1
		of.changes = append(of.changes, c)
	})
	var err error
	call := c.verb + " " + of.name
	switch c.verb {
	case "set":
		call += " to " + string(c.set.Message.Body) + " " + c.set.Cron
		_, err = client.SetRecurring(ctx, c.set.Recurring)
	case "pause":
		_, err = client.PauseRecurring(ctx, of.name, a.name)
	case "resume":
		_, err = client.ResumeRecurring(ctx, of.name)
	case "delete":
		err = client.DeleteRecurring(ctx, of.name)
	}
	a.answered(call, err)
	if c.isNone = errors.Is(err, delay.ErrNotFound); c.isNone {
		err = nil
	}
	a.in("has changed", func() {
		if c.ended, c.isDone = a.w.now(), err == nil; c.isDone {
			a.w.model.areEnded(of, c)
		}
	})
	return err
}

// mayFire reports whether firings of the edition may still be made: nobody was answered that another one is in force, or
// none, or that it is paused.
func (e *edition) mayFire() bool {
	for _, set := range e.of.changes {
		if set.set == e && !e.of.isOver(set) {
			return true
		}
	}
	return false
}

// isOver reports whether what a call has set can make no firing any more. A call that began after this one's end, and was
// answered, comes after it, even if nobody knows what became of this one.
func (s *series) isOver(set *seriesCall) bool {
	for _, c := range s.changes {
		if !c.isDone || set.ended < 0 || c.began <= set.ended {
			continue
		}
		switch c.verb {
		case "delete":
			return true
		case "set":
			if c.set != set.set {
				return true
			}
		case "pause":
			isResumed := false
			for _, r := range s.changes {
				isResumed = isResumed || r.verb != "pause" && (r.ended < 0 || r.ended > c.began) // A set after a delete is not paused.
			}
			if !isResumed {
				return true
			}
		}
	}
	return false
}

// isPaused reports whether there is no firing at that time, because of a pause that was answered before: none ends it.
func (s *series) isPaused(at time.Duration) bool {
	return slices.ContainsFunc(s.changes, func(p *seriesCall) bool {
		if p.verb != "pause" || !p.isDone || p.isNone || p.ended < 0 || p.ended >= at {
			return false
		}
		return !slices.ContainsFunc(s.changes, func(c *seriesCall) bool {
			mayBeLater := c.ended < 0 || c.ended > p.began
			return (c.verb == "resume" || c.verb == "delete") && mayBeLater && c.began < at
		})
	})
}

// mayEnd reports whether somebody has begun what ends firings of the edition, or, of nil, of any.
func (s *series) mayEnd(e *edition) bool {
	return slices.ContainsFunc(s.changes, func(c *seriesCall) bool {
		return c.verb == "pause" || c.verb == "delete" || c.verb == "set" && c.set != e
	})
}

// isFiring reports whether the identity is one of firings.
func isFiring(id string) bool { return strings.Contains(id, "@") }

// firing is the life of a firing, by what is stored of it: each revision of a schedule has a token of its own. If only the body is
// known, it is the one in flight or dead, or else the last one. A life without an edition is there only to be cancelled, since whoever ends a firing first makes
// the call that schedules it.
func (m *model) firing(member, stored, body string) *life {
	id, key := message.SplitMember(member)
	if !isFiring(id) {
		return nil
	}
	e, at := m.editions[body], member+body
	if e == nil {
		at = member
	}
	if len(stored) < 14+message.TokenLength {
		for _, p := range m.identity(member).places {
			if l := p.now.life; l != nil && l.edition == e && p.now.state != waiting {
				return l
			}
		}
		return m.firings[at]
	}
	at += stored[14 : 14+message.TokenLength]
	if l := m.firings[at]; l != nil {
		return l
	}
	for _, p := range m.identity(member).places { // A reschedule gives it another token.
		if l := p.now.life; l != nil && l.edition == e && m.w.redis.server.ran == "reschedule" {
			m.firings[at] = l
			return l
		}
	}
	l := &life{
		body: body, id: id, key: key, member: member, began: m.w.now(), accepted: -1, claimedAt: -1, cameAt: -1,
		isFixed: true, isOnce: true, isFiring: true, edition: e, mayBeLate: m.w.plan.fleet.policy.Late.Then != "",
	}
	if e != nil {
		l.topic = e.Message.Topic
	}
	m.firings[at[:len(at)-message.TokenLength]], m.firings[at] = l, l
	m.lives = append(m.lives, l)
	who := m.identity(member)
	who.lives = append(who.lives, l)
	return l
}

// firingCame judges that a firing is made.
func (m *model) firingCame(l *life, score int64) {
	name, text, _ := strings.Cut(l.id, "@")
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		m.w.fail("recurring: %s is no firing", l)
		return
	}
	l.promise = promise{at: time.UnixMilli(score)}
	if l.edition == nil {
		l.mayBeLate = true
		return
	}
	l.accepted = m.w.now()
	if due := l.promise.at; due.Before(at) || due.After(at.Add(l.edition.Jitter)) {
		m.w.fail("recurring: %s is due at %s", l, m.stamp(due))
	}
	if l.edition.Name != name || l.edition.Message.Key != l.key {
		m.w.fail("recurring: %s is one of %s", l, l.edition.Name)
	}
	// A planner that is held up knows for a while what a loss has taken, such as the end of a firing.
	if at := m.w.now(); !l.edition.mayFire() && !m.clockWasSet(at-2*time.Minute) && !m.was(at-time.Minute, "wipe", "restore", "lost shard") {
		m.w.fail("recurring: %s is made, and whoever has ended that was answered", l)
	}
	m.isInTime(l, at, score)
	m.isOnlyOne(l)
	m.isWrittenDown(l, at)
}

// isInTime judges when a firing is, and when it is due: not after the end, nor in a pause, and whoever plans it always at the same time.
func (m *model) isInTime(l *life, at time.Time, score int64) {
	e := l.edition
	if !e.Until.IsZero() && at.After(e.Until) {
		m.w.fail("recurring: %s is made, and the last one may be at %s", l, m.stamp(e.Until))
	}
	if e.of.isPaused(at.Sub(m.w.began)) && !m.was(0, "clock", "wipe", "restore", "lost shard") {
		m.w.fail("recurring: %s is made, and it was paused then", l)
	}
	if was, isAgain := e.dues[l.id]; isAgain && was != score {
		m.w.fail("recurring: %s is due at %s, and was at %s before", l, m.stamp(time.UnixMilli(score)), m.stamp(time.UnixMilli(was)))
	}
	e.dues[l.id] = score
}

// isOnlyOne judges that a firing is one message: a later revision of the schedule makes it again only if it did not come. One that is set
// after a delete knows nothing of what came.
func (m *model) isOnlyOne(l *life) {
	of := l.edition.of
	isForgotten := func(other *life) bool {
		return slices.ContainsFunc(of.changes, func(c *seriesCall) bool { return c.verb == "delete" && (!c.isDone || c.ended >= other.began) })
	}
	for _, other := range of.made[l.id] {
		// Of one whose outcome nobody knew the next one comes, too: rather twice than never.
		if !isForgotten(other) && other.hasCopy() && other.unknowns == 0 && !other.isLoose && !m.was(other.began-2*time.Minute, "clock", "wipe", "restore", "lost shard") {
			m.w.fail("recurring: %s is made, and %s was published", l, other)
		}
	}
	of.made[l.id] = append(of.made[l.id], l)
}

// isWrittenDown judges that a firing was decided before it is made, and that what was missed comes only as far as it is to.
func (m *model) isWrittenDown(l *life, at time.Time) {
	e, r := l.edition, storerecurring.Record{}
	text, _ := m.w.redis.server.field(m.w.plan.operator.queue.Keys().Recurring(), e.Name)
	if json.Unmarshal([]byte(text), &r) != nil || string(r.Body) != l.body || !r.Paused.IsZero() || r.IsDeleted || r.Stale != nil {
		return // Another change is in force.
	}
	// Who has read earlier that it is next makes it also where Redis has lost that since.
	isMadeUp := m.was(m.w.now()-2*time.Minute, "wipe", "restore", "lost shard")
	if !slices.Contains(r.Pending, at.Unix()) && !isMadeUp {
		m.w.fail("recurring: %s is made, and nobody has written down that it is next", l)
	}
	missed := 0
	for _, second := range r.Pending {
		if at := time.Unix(second, 0); at.Before(r.DecidedAt.Add(-time.Minute)) {
			missed++
			next := at.Add(e.every)
			if !next.After(r.Planned) && !slices.Contains(r.Pending, next.Unix()) && e.of.made[storerecurring.FiringID(e.Name, next.Unix())] == nil {
				m.w.fail("recurring: %s was missed and comes, and the one after it does not", l)
			}
		}
	}
	if most := map[delay.Missed]int{delay.OnceMissed: 1, delay.CatchUpMissed: e.CatchUp}[e.Missed]; missed > most {
		m.w.fail("recurring: %s is made, and with it %d that were missed, of which %d may come", l, missed, most)
	}
}

// areEnded judges what a change has left that was answered: nothing of what it ends waits that is not due yet.
func (m *model) areEnded(of *series, c *seriesCall) {
	for _, id := range sortedKeys(of.made) {
		for _, l := range of.made[id] {
			if m.was(min(c.began, l.accepted)-2*time.Minute, "clock", "wipe", "restore", "lost shard") {
				continue
			}
			isWaiting := slices.ContainsFunc(m.identity(l.member).places, func(p *place) bool { return p.now.life == l && p.now.state == waiting })
			at := l.promise.at
			if !l.isFixed { // Somebody has moved it, so its nominal time counts, too.
				_, nominal, _ := strings.Cut(id, "@")
				if at, _ = time.Parse(time.RFC3339, nominal); l.due().due.Before(at) {
					at = l.due().due
				}
			}
			// One that was in flight when the schedule was deleted lives on, and may be moved: nobody will end it any more.
			isSpent := l.claimedAt >= 0 && (c.isNone && l.claimedAt <= c.began || slices.ContainsFunc(of.changes, func(d *seriesCall) bool {
				return d.verb == "delete" && d.isDone && l.claimedAt <= d.ended && d.ended <= c.began
			}))
			if isWaiting && at.After(m.w.redis.clock()) && !isSpent && !l.edition.mayFire() {
				m.w.fail("recurring: a %s was answered, and %s waits", c.verb, l)
			}
		}
	}
}

// firingLeft judges that a firing is cancelled: it is one of an edition that somebody has ended.
func (m *model) firingLeft(l *life, by string) {
	name, _, _ := strings.Cut(l.id, "@")
	if m.isOfAJob(l, job.Cancel, job.Purge) {
		l.isFixed = false
	} else if s := m.series[name]; s == nil || !s.mayEnd(l.edition) {
		m.w.fail("I4: a cancel of %s removed %s, which nobody had asked for", by, l)
	}
}

// stillFires looks whether all firings of these seconds have come, long after all trouble was over.
func (a *actor) stillFires() {
	m := a.w.model
	for _, name := range sortedKeys(m.series) {
		client := a.w.plan.producers[0].clients[delay.Reject]
		var is delay.RecurringState
		a.insist("look at "+name, func(ctx context.Context) (err error) {
			if is, err = client.Recurring(ctx, name); errors.Is(err, delay.ErrNotFound) {
				err = nil
			}
			return err
		})
		if is.Cron == "" || !is.PausedAt.IsZero() {
			continue
		}
		a.in("looks", func() {
			e := m.editions[string(is.Message.Body)]
			if e == nil {
				a.w.fail("recurring: %s is in force, which nobody has set", is.Message.Body)
				return
			}
			if m.was(a.w.now()-20*time.Minute, "clock") {
				return // What was in the future then may be missed.
			}
			now := a.w.redis.clock()
			end := now.Add(-2*time.Second - e.Jitter)
			if !is.Until.IsZero() && is.Until.Before(end) {
				end = is.Until
			}
			for at := is.SetAt.Truncate(time.Second).Add(e.every); at.Before(end); at = at.Add(e.every) {
				member := message.Member(storerecurring.FiringID(name, at.Unix()), e.Message.Key)
				l := m.firings[member+string(e.Message.Body)]
				if at.After(now.Add(-25*time.Second)) && (l == nil || !l.hasCopy() && !l.isDead && !l.mayBeLate) {
					a.w.fail("recurring: %q of %s has not come", member, e.Message.Body)
				}
			}
		})
	}
}

// endRecurrings deletes all recurring schedules, so that the story can end.
func (a *actor) endRecurrings() {
	for _, name := range sortedKeys(a.w.model.series) {
		a.insist("delete "+name, func(context.Context) error { return a.changes(&seriesCall{verb: "delete"}, a.w.model.series[name]) })
	}
}
