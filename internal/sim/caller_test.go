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
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// producer is a process of the users', with the SDK.
type producer struct {
	h       *host
	rdb     *redis.Client
	clients map[delay.Conflict]*delay.Client
	queue   *store.Queue // as a bridge's API has it
	db      *sql.DB
	boxes   map[delay.Conflict]*outbox.Outbox
}

func (w *world) startProducer(name string, together bool) *producer {
	p := &producer{h: w.newHost(name), clients: map[delay.Conflict]*delay.Client{}}
	p.rdb = p.h.client()
	p.openBoxes(w)
	w.plan.clients = append(w.plan.clients, p.rdb)
	p.queue = store.New(p.rdb, prefix, queueName)
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

// story is one caller of one identity.
type story struct {
	*actor
	p   *producer
	id  string
	key string
}

var simTopics = []string{"a", "b", "c", "d"}

// burst has callers schedule messages, and do something with some of them.
func (w *world) burst(d *decision) {
	random := d.random()
	n := 1 + random.IntN(24)
	p := w.plan.producers[random.IntN(2)]
	if random.IntN(4) == 0 {
		w.actor(fmt.Sprintf("batch%d", d.index), random, func(a *actor) {
			if name := fmt.Sprintf("b%d", d.index); w.plan.isHeavy {
				a.heavy(p, name, 80+n)
			} else {
				a.batch(p, name, n)
			}
		})
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
		if own.IntN(3) > 0 {
			continue
		}
		rival := &story{p: w.plan.producers[own.IntN(len(w.plan.producers))], id: s.id, key: s.key}
		rival.actor = &actor{w, s.id + "r", rand.New(rand.NewPCG(d.seed, uint64(i)+1000))}
		w.after(between(own, time.Millisecond, 5*time.Second), "", func() {
			w.plan.actors.Go(rival.interfere)
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

// when chooses a due time.
func (a *actor) when() (delay.When, promise) {
	d := between(a.random, time.Millisecond, 40*time.Second)
	switch {
	case a.chance(3):
		d = 0
	case a.chance(15) && a.w.now() < actLasts: // Due in the night.
		d = between(a.random, time.Minute, 50*time.Minute)
	}
	if a.chance(2) {
		return delay.After(d), promise{isDelay: true, delay: d}
	}
	at := a.w.redis.clock().Add(d)
	return delay.At(at), promise{at: at}
}

// call is the ctx of a call.
func (a *actor) call() (context.Context, context.CancelFunc) {
	limit := 10 * time.Second
	if a.chance(4) {
		limit = between(a.random, 5*time.Millisecond, 3*time.Second)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	if a.chance(8) { // Its caller gives up.
		early := between(a.random, time.Millisecond, 3*time.Second)
		a.in("will give up", func() { a.w.after(early, "", cancel) })
	}
	return ctx, cancel
}

// repeats makes a call, and repeats it while its outcome is unknown, mostly. Its effect may
// come while it is under way, and at no other time.
func (a *actor) repeats(call string, of *ask, do func(context.Context, ...delay.CallOption) error) error {
	ctx, cancel := a.call()
	defer cancel()
	a.in("begins", func() { a.w.model.begin(of) })
	err := do(ctx)
	a.answered(call, err)
	for errors.Is(err, delay.ErrUnknown) && !a.chance(5) && !a.w.isOver {
		a.in("knows nothing", func() {
			of.isUnderWay = false
			a.w.model.traces.answered(of, err)
		})
		if a.chance(3) {
			a.rest(between(a.random, time.Millisecond, 90*time.Second))
		}
		again, cancel := a.call()
		a.in("repeats", func() {
			of.isUnderWay = true
			a.w.model.traces.begins(of)
		})
		if !a.w.isOver { // Nobody would publish it.
			err = do(again, delay.Repeat(err))
		}
		a.answered(call+" again", err)
		cancel()
	}
	return err
}

func (s *story) ref() delay.Ref { return delay.Ref{ID: s.id, Key: s.key} }

func (s *story) who() *identity { return s.w.model.identity(message.Member(s.id, s.key)) }

// client is whose call it is: mostly that of the same process.
func (s *story) client(conflict delay.Conflict) (c *delay.Client, by string) {
	p := s.p
	if s.chance(6) {
		p = s.w.plan.producers[s.random.IntN(len(s.w.plan.producers))]
	}
	return p.clients[conflict], p.h.name
}

// live is what becomes of one identity.
func (s *story) live() {
	s.schedule(delay.Reject)
	if s.chance(2) {
		return
	}
	s.acts(1+s.random.IntN(3), 20*time.Second)
}

// interfere has another caller act on it meanwhile.
func (s *story) interfere() {
	for range 1 + s.random.IntN(3) {
		s.act()
		s.rest(between(s.random, time.Millisecond, 5*time.Second))
	}
}

func (s *story) acts(n int, rest time.Duration) {
	for range n {
		s.rest(between(s.random, time.Millisecond, rest))
		s.act()
	}
}

func (s *story) act() {
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

// schedule makes another life of the identity, or tries to.
func (s *story) schedule(conflict delay.Conflict) {
	when, promised := s.when()
	m, l := s.message(s.id, s.key)
	s.send(conflict, m, l, when, promised)
}

// scheduleAs is schedule, with that topic, due after so long.
func (s *story) scheduleAs(conflict delay.Conflict, topic string, d time.Duration) {
	m, l := s.message(s.id, s.key)
	m.Topic, l.topic = topic, topic
	s.send(conflict, m, l, delay.After(d), promise{isDelay: true, delay: d})
}

func (s *story) send(conflict delay.Conflict, m delay.Message, l *life, when delay.When, promised promise) {
	if conflict == delay.Replace {
		l.ask.verb = "replace"
		if promised.isDelay && s.chance(2) { // It debounces.
			promised.maxWait = promised.delay + between(s.random, time.Millisecond, 20*time.Second)
			when = when.MaxWait(promised.maxWait)
		}
	}
	l.promise = promised
	client, _ := s.client(conflict)
	var result delay.Result
	name := delay.Once(l.body, 20*time.Minute)
	if s.chance(8) {
		s.in("has a name", func() { l.isOnce = true })
	}
	err := s.repeats("schedule "+l.body, l.ask, func(ctx context.Context, opts ...delay.CallOption) (err error) {
		isAgain := len(opts) > 0
		if l.isOnce {
			opts = []delay.CallOption{name}
		}
		result, err = client.Schedule(ctx, m, when, opts...)
		if l.isOnce && isAgain && err != nil && !isAnswer(err) { // It says nothing of the calls before it.
			err = fmt.Errorf("%w: %w", delay.ErrUnknown, err)
		}
		return err
	})
	s.in("scheduled", func() { s.w.model.scheduled(l, result, err) })
	if l.isOnce && s.chance(2) {
		s.once(conflict, m, l, when, name, result, err)
	}
}

// isAnswer reports whether a call with a name has told what became of it.
func isAnswer(err error) bool {
	return delay.Done(err) || errors.Is(err, delay.ErrDuplicate) || errors.Is(err, delay.ErrTooLate)
}

// once makes a call with a name once more, mostly by another process.
func (s *story) once(conflict delay.Conflict, m delay.Message, l *life, when delay.When, name delay.CallOption, first delay.Result, was error) {
	isDone := delay.Done(was) && first.Status != delay.Existing
	if !isDone && !errors.Is(was, delay.ErrUnknown) && !errors.Is(was, delay.ErrForgotten) {
		return // It was refused, which a loss of the trace would undo.
	}
	s.rest(between(s.random, time.Millisecond, 3*time.Minute))
	client := s.w.plan.producers[s.random.IntN(len(s.w.plan.producers))].clients[conflict]
	ctx, cancel := s.call()
	defer cancel()
	s.in("does it again", func() { l.ask.isUnderWay = true }) // That an effect is the second one, is for the life to say.
	result, err := client.Schedule(ctx, m, when, name)
	s.answered("schedule "+l.body+" once more", err)
	s.in("has done it again", func() {
		l.ask.isUnderWay = false
		isKnown := l.ask.who.restored < l.ask.began && !s.w.model.was(l.ask.began, "wipe") && !s.w.model.clockWasSet(l.ask.began-time.Minute)
		isSame := result.Status == first.Status && result.DueAt.Equal(first.DueAt)
		if isDone && isKnown && isAnswer(err) && !isSame {
			s.w.fail("I10: %s was answered %s, %s, %q, and once more %s, %s, %q", l, first.Status, s.w.model.stamp(first.DueAt), textOf(was), result.Status, s.w.model.stamp(result.DueAt), textOf(err))
		}
	})
}

// scheduled judges what a schedule was answered.
func (m *model) scheduled(l *life, result delay.Result, err error) {
	a := l.ask
	isClock := m.clockWasSet(a.began-time.Minute) || a.who.restored >= a.began
	switch {
	case errors.Is(err, delay.ErrUnknown), errors.Is(err, delay.ErrForgotten):
		a.isUnderWay = false
		m.traces.answered(a, err)
		return
	case delay.Done(err) && result.Status == delay.Existing:
		err = errors.Join(delay.ErrDuplicate, err)
	case delay.Done(err):
		if l.accepted = m.w.now(); l.created == 0 {
			m.w.fail("I1: %s was accepted, and never was in Redis", l)
		}
		if result.Status == delay.Replaced && l.took == nil {
			m.w.fail("I10: %s is said to have replaced another, and none was there", l)
		}
		if len(l.dues) > 0 && a.effects == 1 && l.removed == "" && !result.DueAt.Equal(l.dues[0].due) && l.isFixed && !isClock {
			m.w.fail("I2: %s is said to be due at %s, and is at %s", l, m.stamp(result.DueAt), m.stamp(l.due().due))
		}
		if a.effects > 1 && l.isAgain {
			a.effects = 1 // It was published between the runs, which leaves no trace.
		}
	default:
		l.isNever = l.created == 0
	}
	m.answered("schedule", a, err)
}

func (s *story) cancel() {
	a := &ask{who: s.who(), verb: "cancel"}
	if !s.takes(func(id *identity) **ask { return &id.cancels }, a) {
		return
	}
	client, by := s.client(delay.Reject)
	a.by = by
	err := s.repeats("cancel", a, func(ctx context.Context, opts ...delay.CallOption) error {
		return client.Cancel(ctx, s.ref(), opts...)
	})
	s.in("cancelled", func() {
		a.who.cancels = nil
		s.w.model.answered("cancel", a, err)
	})
}

// takes has the caller's be the one call of a verb, unless another is under way: else nobody
// could tell whose effect is whose.
func (s *story) takes(of func(*identity) **ask, a *ask) (isFree bool) {
	s.in("takes", func() {
		if at := of(a.who); *at == nil {
			*at, isFree = a, true
		}
	})
	return isFree
}

func (s *story) reschedule() {
	when, promised := s.when()
	a := &ask{who: s.who(), verb: "reschedule", promise: promised}
	if !s.takes(func(id *identity) **ask { return &id.reschedules }, a) {
		return
	}
	client, by := s.client(delay.Reject)
	a.by = by
	err := s.repeats("reschedule", a, func(ctx context.Context, opts ...delay.CallOption) error {
		return client.Reschedule(ctx, s.ref(), when, opts...)
	})
	s.in("rescheduled", func() {
		a.who.reschedules = nil
		s.w.model.answered("reschedule", a, err)
	})
}

func (s *story) get() {
	ctx, cancel := s.call()
	defer cancel()
	began := s.w.now()
	client, _ := s.client(delay.Reject)
	info, err := client.Get(ctx, s.ref())
	s.answered("get", err)
	s.in("got", func() { s.w.model.got(s.who(), began, info, err) })
}

// got judges what a look at a message has told.
func (m *model) got(id *identity, began time.Duration, info delay.Info, err error) {
	says := func(is state, what string) {
		if !id.wasSince(is, began) {
			m.w.fail("I11: get of %q says that it is %s, and it was not", id.member, what)
		}
	}
	switch {
	case errors.Is(err, delay.ErrNotFound):
		says(absent, "nowhere")
	case err != nil:
	case info.State == delay.Scheduled:
		says(waiting, "waiting")
	case info.State == delay.InFlight:
		says(inFlight, "in flight")
	case info.State == delay.Dead:
		says(dead, "dead")
	default:
		says(absent, "over")
		m.gotEnd(id, info.State)
	}
}

// gotEnd judges what the history has told of an end.
func (m *model) gotEnd(id *identity, says delay.State) {
	isTrue := slices.ContainsFunc(id.lives, func(l *life) bool {
		switch says { //nolint:exhaustive // the others are no ends
		case delay.Published:
			return l.hasCopy()
		case delay.Cancelled:
			return l.removed == "cancel" || l.isLoose
		case delay.Purged:
			return l.removed == "cancel" || l.isLoose
		case delay.Dropped:
			return l.mayBeLate
		}
		return false
	})
	if !isTrue {
		m.w.fail("I11: get of %q says that it was %s", id.member, says)
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
		requests[i].When, lives[i].promise = a.when()
	}
	a.send(p, requests, lives)
}

// heavy schedules many messages at once that are due at one instant, have no Key, and as many tags as they may.
func (a *actor) heavy(p *producer, name string, n int) {
	requests := make([]delay.Request, n)
	lives := make([]*life, n)
	when, promised := a.when()
	for i := range requests {
		requests[i].Message, lives[i] = a.message(fmt.Sprintf("%s-%d", name, i), "")
		for tag := range message.MaxTags {
			lives[i].tags = append(lives[i].tags, fmt.Sprintf("heavy%d", tag))
		}
		lives[i].tags = lives[i].tags[len(lives[i].tags)-message.MaxTags:]
		requests[i].Message.Tags = lives[i].tags
		requests[i].When, lives[i].promise = when, promised
	}
	a.send(p, requests, lives)
}

// send schedules messages at once, and repeats what nobody knows of.
func (a *actor) send(p *producer, requests []delay.Request, lives []*life) {
	for n := range 6 {
		ctx, cancel := a.call()
		a.in("begins", func() {
			for _, l := range lives {
				if l.ask.isUnderWay = true; n == 0 {
					l.ask.began = a.w.now()
				}
				a.w.model.traces.begins(l.ask)
			}
		})
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
				a.w.model.scheduled(lives[i], r, r.Err)
			}
		})
		if requests, lives = again, of; len(requests) == 0 {
			return
		}
	}
}
