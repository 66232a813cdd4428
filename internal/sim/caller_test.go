package sim

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
)

// producer is a process of the users', with the SDK.
type producer struct {
	h       *host
	rdb     *redis.Client
	clients map[delay.Conflict]*delay.Client
	db      *sql.DB
	boxes   map[delay.Conflict]*outbox.Outbox
}

func (w *world) startProducer(name string, together bool) *producer {
	p := &producer{h: w.newHost(name), clients: map[delay.Conflict]*delay.Client{}}
	p.rdb = p.h.client()
	durable := delay.Memory
	if w.plan.durable {
		durable = delay.Replicas(1)
	}
	for _, conflict := range []delay.Conflict{delay.Reject, delay.Keep, delay.Replace} {
		c, err := delay.NewClient(p.rdb, queueName, delay.WithPrefix(prefix), delay.WithConflict(conflict), delay.WithCoalescing(together), delay.WithDurability(durable))
		if err != nil {
			w.t.Fatal(err)
		}
		p.clients[conflict] = c
	}
	p.openBoxes(w)
	return p
}

// actor is a goroutine that runs while the world waits for it.
type actor struct {
	w      *world
	name   string
	random *rand.Rand
}

// actor begins one.
func (w *world) actor(name string, random *rand.Rand, run func(*actor)) {
	a := &actor{w, name, random}
	w.plan.actors.Go(func() { run(a) })
}

// rest waits by the world's events.
func (a *actor) rest(d time.Duration) {
	over := make(chan struct{})
	a.w.ask(a.name+" rests", func() { a.w.after(d, "", func() { close(over) }) })
	<-over
}

func (a *actor) chance(oneIn int) bool { return a.random.IntN(oneIn) == 0 }

// in does something as an event of the world, and waits for it.
func (a *actor) in(what string, do func()) {
	over := make(chan struct{})
	a.w.ask(a.name+" "+what, func() { do(); close(over) })
	<-over
}

// answered tells the story of a call's answer.
func (a *actor) answered(call string, err error) {
	text := "done"
	if err != nil {
		text = short(err)
	}
	a.w.tell(fmt.Sprintf("%s: %s: %s", a.name, call, text))
}

// short is what an error is, without what may differ from run to run.
func short(err error) string {
	for _, known := range []error{
		delay.ErrDuplicate, delay.ErrNotFound, delay.ErrTooLate, delay.ErrMaybePublished, delay.ErrUnknown, delay.ErrForgotten, delay.ErrUnavailable,
		delay.ErrNotDurable, delay.ErrFull, delay.ErrNoLayout, delay.ErrInvalid,
	} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return err.Error()
}

// story is one identity as its only caller knows it.
type story struct {
	*actor
	p    *producer
	id   string
	key  string
	life *life // the one that was asked for last
	all  []*life
}

var simTopics = []string{"a", "b", "c", "d"}

// burst has callers schedule messages, and do something with some of them.
func (w *world) burst(d *decision) {
	random := d.random()
	n := 1 + random.IntN(24)
	p := w.plan.producers[random.IntN(len(w.plan.producers))]
	if random.IntN(4) == 0 {
		w.actor(fmt.Sprintf("batch%d", d.index), random, func(a *actor) { a.batch(p, fmt.Sprintf("b%d", d.index), n) })
		return
	}
	for i := range n {
		own := rand.New(rand.NewPCG(d.seed, uint64(i)))
		s := &story{p: p, id: fmt.Sprintf("m%d-%d", d.index, i)}
		if own.IntN(4) > 0 {
			s.key = fmt.Sprintf("k%d", own.IntN(4))
		}
		s.actor = &actor{w, s.id, own}
		w.after(between(own, time.Millisecond, 3*time.Second), "", func() {
			w.plan.actors.Go(s.live)
		})
	}
}

// message makes what is to be scheduled.
func (a *actor) message(id, key string) (delay.Message, *life) {
	topic := simTopics[a.random.IntN(len(simTopics))]
	var tags []string
	if a.chance(3) {
		tags = append(tags, fmt.Sprintf("tag%d", a.random.IntN(3)))
	}
	m := delay.Message{ID: id, Key: key, Topic: topic, Tags: tags}
	if a.chance(20) {
		m.Late = delay.Late{After: time.Duration(1+a.random.IntN(20)) * time.Second, Then: []delay.LateAction{delay.LateDrop, delay.LateDead}[a.random.IntN(2)]}
	}
	var l *life
	a.in("asks", func() {
		l = a.w.model.asks(id, key, topic, tags)
		l.mayBeLate = m.Late.Then != "" || a.w.plan.fleet.policy.Late.Then != ""
	})
	m.Body = []byte(l.body)
	return m, l
}

// when chooses a due time, and the least that it may be by Redis' clock.
func (a *actor) when() (delay.When, time.Time) {
	d := between(a.random, time.Millisecond, 40*time.Second)
	switch {
	case a.chance(3):
		d = 0
	case a.chance(15) && a.w.now() < actLasts: // Due in the night.
		d = between(a.random, time.Minute, 50*time.Minute)
	}
	clock := a.w.redis.clock()
	if a.chance(2) {
		return delay.After(d), clock.Add(d).Add(-time.Millisecond).Add(min(0, -a.w.redis.skew-a.w.plan.span))
	}
	at := clock.Add(d).Truncate(time.Millisecond)
	return delay.At(at), at
}

// call is the ctx of a call.
func (a *actor) call() (context.Context, context.CancelFunc) {
	limit := 10 * time.Second
	if a.chance(4) {
		limit = between(a.random, 5*time.Millisecond, 3*time.Second)
	}
	return context.WithTimeout(context.Background(), limit)
}

// repeats makes a call, and repeats it while its outcome is unknown, mostly.
func (a *actor) repeats(call string, do func(context.Context, ...delay.CallOption) error) error {
	ctx, cancel := a.call()
	defer cancel()
	err := do(ctx)
	a.answered(call, err)
	for errors.Is(err, delay.ErrUnknown) && !a.chance(5) && !a.w.isOver {
		if a.chance(3) {
			a.rest(between(a.random, time.Millisecond, 20*time.Second))
		}
		again, cancel := a.call()
		err = do(again, delay.Repeat(err))
		a.answered(call+" again", err)
		cancel()
	}
	return err
}

func (s *story) ref() delay.Ref { return delay.Ref{ID: s.id, Key: s.key} }

// live is what becomes of one identity.
func (s *story) live() {
	s.schedule(delay.Reject)
	if s.chance(2) {
		return
	}
	for range 1 + s.random.IntN(3) {
		s.rest(between(s.random, time.Millisecond, 20*time.Second))
		if s.w.isOver {
			return
		}
		switch s.random.IntN(9) {
		case 0, 1, 2:
			s.cancel()
		case 3, 4:
			s.reschedule()
		case 5:
			s.get()
		case 6:
			s.schedule(delay.Replace)
		case 7:
			s.schedule(delay.Keep)
		case 8:
			s.schedule(delay.Reject)
		}
	}
}

// schedule makes another life of the identity, or tries to.
func (s *story) schedule(conflict delay.Conflict) {
	before := s.life
	m, l := s.message(s.id, s.key)
	when, least := s.when()
	s.in("due", func() {
		l.dues = []time.Time{least}
		if conflict == delay.Replace {
			for _, other := range s.all {
				other.ends, other.isFixed = append(other.ends, "replace"), false
			}
		}
		s.all = append(s.all, l)
	})
	var result delay.Result
	err := s.repeats("schedule "+l.body, func(ctx context.Context, opts ...delay.CallOption) (err error) {
		result, err = s.p.clients[conflict].Schedule(ctx, m, when, opts...)
		return err
	})
	s.in("scheduled", func() { s.scheduled(before, l, conflict, result, err) })
}

// scheduled judges what a schedule was answered.
func (s *story) scheduled(before, l *life, conflict delay.Conflict, result delay.Result, err error) {
	fail := func(text string) {
		s.w.fail("%s: schedule of %s says %v, %s", text, l, short(errOr(err, string(result.Status))), told(before))
	}
	switch {
	case err == nil || errors.Is(err, delay.ErrNotDurable) && !errors.Is(err, delay.ErrDuplicate):
		switch result.Status {
		case delay.Existing:
			l.isNever = true
			if before != nil && before.isOver == "cancelled" && !before.isLoose {
				fail("I11")
			}
			if before != nil && before.isNever && !before.isLoose && before.accepted < 0 {
				return
			}
		default:
			s.life, l.accepted = l, s.w.now()
			if !result.DueAt.IsZero() {
				l.dues = []time.Time{result.DueAt}
			}
			if before != nil && before.isOpen() && !before.hasCopy() && result.Status == delay.Created && !before.isDead {
				fail("I10")
			}
			if before != nil && result.Status == delay.Replaced {
				before.isOver, before.overAt = cmpOr(before.isOver, "maybe replaced"), s.w.now()
			}
		}
	case errors.Is(err, delay.ErrUnknown), errors.Is(err, delay.ErrForgotten):
		l.isMaybe = true
		s.life = l
		if before != nil {
			before.isMaybe = true
		}
	default: // Nothing was changed.
		if l.isNever = true; l.cameAt >= 0 && !l.isLoose {
			s.w.fail("I11: schedule of %s says %s, and it is there since %s", l, short(err), l.cameAt)
		}
		if errors.Is(err, delay.ErrDuplicate) && before != nil && before.isOver == "cancelled" && !before.isLoose && !before.isMaybe {
			fail("I11")
		}
	}
}

func errOr(err error, text string) error {
	if err != nil {
		return err
	}
	return errors.New(text)
}

func told(l *life) string {
	if l == nil {
		return "and nothing was before"
	}
	return fmt.Sprintf("before it was %s (accepted %s, over %q, removed by %q, copies %d, dead %v)", l, l.accepted, l.isOver, l.removed, len(l.copies), l.isDead)
}

// isOpen reports whether the life certainly was accepted, and nobody has ended it.
func (l *life) isOpen() bool {
	return l.accepted >= 0 && l.isOver == "" && len(l.ends) == 0 && !l.isLoose && !l.isMaybe && !l.mayBeLate
}

// gone judges an answer that says that the life is not there.
func (s *story) gone(l *life, call string) {
	// A clock that was set forward ends the tombstones that a further run looks for.
	if l != nil && l.isOpen() && !l.hasCopy() && !l.isDead && !s.w.model.was(s.w.now()-time.Minute, "clock") {
		s.w.fail("I11: %s says that it was not found, %s", call, told(l))
	}
}

func (s *story) cancel() {
	l := s.life
	s.in("cancel", func() {
		for _, other := range s.all {
			other.ends = append(other.ends, "cancel")
		}
	})
	err := s.repeats("cancel", func(ctx context.Context, opts ...delay.CallOption) error {
		return s.p.clients[delay.Reject].Cancel(ctx, s.ref(), opts...)
	})
	s.in("cancelled", func() {
		if l == nil {
			return
		}
		open := *l
		open.ends = slices.DeleteFunc(slices.Clone(l.ends), func(end string) bool { return end == "cancel" })
		switch {
		case err == nil:
			if l.hasCopy() && !l.isLoose && l.isOver == "" && !l.isMaybe {
				s.w.fail("I11: cancel says that it was done, %s", told(l))
			}
			l.isOver, l.overAt = cmpOr(l.isOver, "cancelled"), s.w.now()
		case errors.Is(err, delay.ErrMaybePublished), errors.Is(err, delay.ErrNotDurable):
			l.isOver, l.overAt = cmpOr(l.isOver, "maybe cancelled"), s.w.now()
		case errors.Is(err, delay.ErrTooLate):
			if l.claimedAt < 0 && !l.isLoose && !l.isMaybe && l.accepted >= 0 {
				s.w.fail("I11: cancel says that it is in flight, and it was never claimed: %s", told(l))
			}
		case errors.Is(err, delay.ErrNotFound):
			if len(open.ends) == len(l.ends)-1 {
				s.gone(&open, "cancel")
			}
		}
		switch {
		case errors.Is(err, delay.ErrTooLate), errors.Is(err, delay.ErrUnavailable):
			for _, other := range s.all {
				if at := slices.Index(other.ends, "cancel"); at >= 0 {
					other.ends = slices.Delete(other.ends, at, at+1)
				}
			}
		}
	})
}

func (s *story) reschedule() {
	l := s.life
	when, least := s.when()
	s.in("reschedule", func() {
		for _, other := range s.all {
			other.isFixed = false
			other.dues = append(other.dues, least)
		}
	})
	err := s.repeats("reschedule", func(ctx context.Context, opts ...delay.CallOption) error {
		return s.p.clients[delay.Reject].Reschedule(ctx, s.ref(), when, opts...)
	})
	s.in("rescheduled", func() {
		if l == nil {
			return
		}
		switch {
		case err == nil:
			if l.hasCopy() && !l.isLoose && !l.isMaybe && l.firstCopy() < l.lastAsk() {
				s.w.fail("I11: reschedule says that it was done, %s", told(l))
			}
			if l.isOver == "" && len(l.ends) == 0 {
				l.dues = l.dues[len(l.dues)-1:]
				// What is certain of it: it is not published before.
				if begun := l.openCopy(); begun && !l.isLoose && !l.isMaybe {
					s.w.fail("I11: reschedule says that it was done, while it is being published: %s", told(l))
				}
			}
		case errors.Is(err, delay.ErrNotFound):
			s.gone(l, "reschedule")
		case errors.Is(err, delay.ErrTooLate):
			if l.claimedAt < 0 && !l.isLoose && !l.isMaybe && l.accepted >= 0 {
				s.w.fail("I11: reschedule says that it is in flight, and it was never claimed: %s", told(l))
			}
		}
		if err != nil && !errors.Is(err, delay.ErrUnknown) && !errors.Is(err, delay.ErrMaybePublished) && !errors.Is(err, delay.ErrForgotten) && !errors.Is(err, delay.ErrNotDurable) && len(l.dues) > 1 {
			l.dues = l.dues[:len(l.dues)-1]
		}
	})
}

// lastAsk is for a later use of when a call began; the story's calls are one after the other.
func (l *life) lastAsk() time.Duration { return l.accepted }

// openCopy reports whether a copy was handed over that is not stored.
func (l *life) openCopy() bool { return false }

func (s *story) get() {
	ctx, cancel := s.call()
	defer cancel()
	_, err := s.p.clients[delay.Reject].Get(ctx, s.ref())
	s.answered("get", err)
	if errors.Is(err, delay.ErrNotFound) {
		s.in("got", func() { s.gone(s.life, "get") })
	}
}

// batch schedules several messages at once.
func (a *actor) batch(p *producer, name string, n int) {
	requests := make([]delay.Request, n)
	lives := make([]*life, n)
	for i := range requests {
		key := ""
		if a.random.IntN(4) > 0 {
			key = fmt.Sprintf("k%d", a.random.IntN(4))
		}
		requests[i].Message, lives[i] = a.message(fmt.Sprintf("%s-%d", name, i), key)
		var least time.Time
		requests[i].When, least = a.when()
		lives[i].dues = []time.Time{least}
	}
	for range 6 {
		ctx, cancel := a.call()
		results, _ := p.clients[delay.Reject].ScheduleBatch(ctx, requests)
		cancel()
		var again []delay.Request
		var of []*life
		for i, r := range results {
			a.answered("schedule "+lives[i].body, r.Err)
			if errors.Is(r.Err, delay.ErrUnknown) {
				requests[i].Repeat = r.Err
				again, of = append(again, requests[i]), append(of, lives[i])
			}
		}
		a.in("scheduled", func() {
			for i, r := range results {
				s := &story{actor: a}
				if !errors.Is(r.Err, delay.ErrUnknown) {
					s.scheduled(nil, lives[i], delay.Reject, r, r.Err)
				} else {
					lives[i].isMaybe = true
				}
			}
		})
		if requests, lives = again, of; len(requests) == 0 {
			return
		}
	}
}
