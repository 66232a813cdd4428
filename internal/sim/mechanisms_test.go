package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
)

// order has many messages of one Key and topic be due one right after the other.
func (w *world) order(d *decision, random *rand.Rand, topic string) {
	key, p := fmt.Sprintf("k%d", random.IntN(4)), w.plan.producers[0]
	for i := range 10 + random.IntN(30) {
		s := &story{p: p, id: fmt.Sprintf("o%d-%d", d.index, i), key: key}
		s.actor = &actor{w, s.id, rand.New(rand.NewPCG(d.seed, uint64(i)))}
		w.after(between(random, time.Millisecond, 500*time.Millisecond), "", func() {
			w.plan.actors.Go(func() { s.scheduleAs(delay.Reject, topic, between(s.random, time.Millisecond, 3*time.Second)) })
		})
	}
}

// hot has several callers contend for a few identities: what one of them has found is
// another message right after.
func (w *world) hot(d *decision, random *rand.Rand, key string, lasts time.Duration) {
	until := w.now() + lasts
	for i := range 6 {
		s := &story{p: w.plan.producers[i%2], id: fmt.Sprintf("h%d-%d", d.index, i%3), key: key}
		s.actor = &actor{w, fmt.Sprintf("%s by %d", s.id, i), rand.New(rand.NewPCG(d.seed, uint64(i)))}
		w.after(between(random, time.Millisecond, 300*time.Millisecond), "", func() {
			w.plan.actors.Go(func() {
				for s.w.now() < until && !s.w.isOver {
					if s.chance(4) {
						s.act()
					} else {
						s.schedule(delay.Replace)
					}
					s.rest(between(s.random, 5*time.Millisecond, 2*time.Second))
				}
			})
		})
	}
}

// cancelAll cancels what has a tag, or a Key, again and again.
func (a *actor) cancelAll(p *producer, filter delay.Filter, lasts time.Duration) {
	m := a.w.model
	all := &sweep{by: p.h.name, matches: func(l *life) bool {
		return (filter.Key == "" || filter.Key == l.key) && (filter.Tag == "" || slices.Contains(l.tags, filter.Tag))
	}}
	for until := a.w.now() + lasts; a.w.now() < until && !a.w.isOver; a.rest(between(a.random, time.Millisecond, time.Second)) {
		var before []*life
		began := a.w.now()
		a.in("cancels all", func() {
			all.removed = 0
			m.sweeps = append(m.sweeps, all)
			before = m.waiting(all.matches)
		})
		ctx, cancel := a.call()
		count, err := p.clients[delay.Reject].CancelAll(ctx, filter)
		cancel()
		a.answered(fmt.Sprintf("cancel all of %+v, %+v", filter, count), err)
		a.in("has cancelled all", func() {
			m.sweeps = slices.DeleteFunc(m.sweeps, func(s *sweep) bool { return s == all })
			m.cancelledAll(all, count, before, began, err)
		})
	}
}

// waiting are the lives that wait, in order.
func (m *model) waiting(matches func(*life) bool) (list []*life) {
	for _, p := range m.places {
		if l := p.now.life; l != nil && matches(l) && p.now.state == waiting {
			list = append(list, l)
		}
	}
	slices.SortFunc(list, func(a, b *life) int { return strings.Compare(a.body, b.body) })
	return list
}

// cancelledAll judges what a call that cancels many was answered: none was missed that has
// waited all the time.
func (m *model) cancelledAll(all *sweep, count delay.CancelCount, before []*life, began time.Duration, err error) {
	if m.was(began, "restore", "wipe") {
		return
	}
	done := count.Done + count.MaybePublished
	if delay.Done(err) && all.removed < done || err != nil && !errors.Is(err, delay.ErrNotDurable) && all.removed < done {
		m.w.fail("I11: cancel all says that %d were cancelled, and %d were", done, all.removed)
	}
	if !delay.Done(err) {
		return
	}
	for _, l := range before {
		if l.removed == "" && l.changed < began {
			m.w.fail("I11: cancel all has ended, and has left %s", l)
		}
	}
}

// history has the queue remember what becomes of its messages, or not.
func (w *world) history(h layout.History) {
	w.plan.history = h
	w.actor("history", rand.New(rand.NewPCG(1, uint64(w.number))), func(a *actor) {
		a.insist(fmt.Sprintf("history of %d", h.Count), func(ctx context.Context) error {
			if a.w.plan.history != h {
				return nil
			}
			_, err := a.w.plan.operator.queue.Layouts().Ensure(ctx, a.w.plan.layout())
			return err
		})
	})
}

// budget keeps the queue within so many bytes, as its keeper does, for a while.
func (a *actor) budget(bytes int64, lasts time.Duration) {
	admin := inspect.NewAdmin(a.w.plan.operator.queue)
	limit := func(ctx context.Context, bytes int64) error {
		_, err := admin.Limit(ctx, bytes)
		return err
	}
	a.in("limits", func() { a.w.countActive("limit", 1) })
	for until := a.w.now() + lasts; a.w.now() < until && !a.w.healed; a.rest(time.Second) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		a.answered(fmt.Sprint("budget of ", bytes), limit(ctx, bytes))
		cancel()
	}
	a.unlimit()
	a.in("limits no more", func() {
		a.w.countActive("limit", -1)
		a.w.model.happened("limit")
	})
}

func (a *actor) unlimit() {
	for isOff := false; !isOff && !a.w.isOver; {
		isOff = a.insist("no budget", func(ctx context.Context) error {
			_, err := inspect.NewAdmin(a.w.plan.operator.queue).Limit(ctx, 0)
			return err
		})
	}
}

// wipe empties Redis, as FLUSHALL does; its replicas, too.
func (w *world) wipe() {
	w.redis.server.wipe()
	if recording != nil {
		recording(w.redis.clock(), []string{"flushall"}, status("OK"))
	}
	clear(w.model.holders)
	for _, r := range w.redis.lagging {
		w.follows(r)
	}
	w.model.layouts = append(w.model.layouts, w.now())
	w.model.restored("", -1)
}

// request is one of the bridge's API, under an idempotency key: whoever makes it repeats it
// until it has an answer.
func (a *actor) request(name string, n int) {
	requests, lives := make([]store.Request, n), make([]*life, n)
	isReplace := a.chance(4)
	for i := range requests {
		key := ""
		if a.chance(2) {
			key = fmt.Sprintf("k%d", a.random.IntN(4))
		}
		m, l := a.message(fmt.Sprintf("%s-%d", name, i), key)
		l.isOnce, lives[i] = true, l
		d := between(a.random, time.Millisecond, 20*time.Second).Truncate(time.Millisecond)
		l.promise = promise{isDelay: true, delay: d}
		requests[i] = store.Request{
			Message: &message.Message{Queue: queueName, ID: m.ID, Key: m.Key, Topic: m.Topic, Body: m.Body},
			When:    store.When{Relative: true, Ms: d.Milliseconds()},
		}
		l.tags = nil
	}
	for range 40 {
		if a.w.isOver {
			return
		}
		if a.ask(name, isReplace, requests, lives) && !a.chance(3) { // Else it does not know yet.
			return
		}
		a.rest(between(a.random, time.Millisecond, 4*time.Second))
	}
}

// onceLease is how long one try of a request may take.
const onceLease = 5 * time.Second

// ask makes the request once, and reports whether it has its answer. The process that serves
// it may end at any time.
func (a *actor) ask(name string, isReplace bool, requests []store.Request, lives []*life) (isAnswered bool) {
	server := a.w.plan.producers[a.random.IntN(len(a.w.plan.producers))].queue.Producer()
	ctx, cancel := context.WithTimeout(context.Background(), min(onceLease, between(a.random, 100*time.Millisecond, 8*time.Second)))
	defer cancel()
	once, err := server.Once(ctx, store.Digest("someone", name), store.Digest(name), onceLease)
	if err != nil {
		a.answered(name+" begins", err)
		return false
	}
	a.w.tell(fmt.Sprintf("%s: %s begins as %d", a.name, name, once.State))
	switch once.State {
	case store.OnceBegun, store.OnceAgain:
	case store.OnceAnswered:
		var codes []store.Code
		if err := json.Unmarshal(once.Answer, &codes); err != nil {
			a.w.fail("I10: the answer of %s is %q", name, once.Answer)
		}
		a.in("has its answer", func() { a.w.model.told(lives, codes) })
		return true
	case store.OnceUnderWay:
		return false
	case store.OnceOther:
		a.w.fail("I10: %s is taken for another request", name)
		return true
	}
	a.in("schedules", func() {
		for _, l := range lives {
			l.ask.isUnderWay = true
		}
	})
	for i := range requests {
		var unknown *store.UnknownError
		errors.As(once.Call(i, requests[i].Message.ID, requests[i].Message.Key, isReplace), &unknown)
		requests[i].Earlier = &unknown.Call
	}
	answers := server.Schedule(ctx, requests, isReplace, store.Durability{})
	codes, isTold, isOpen := make([]store.Code, len(answers)), false, false
	for i, answer := range answers {
		a.answered(name+" schedules "+lives[i].body+fmt.Sprint(" code ", answer.Code), answer.Err)
		codes[i] = answer.Code
		isTold, isOpen = isTold || answer.Err == nil, isOpen || answer.Err != nil
	}
	a.in("has scheduled", func() {
		for _, l := range lives {
			l.ask.isUnderWay = false
		}
	})
	if a.chance(4) { // The process ends.
		return false
	}
	end, cancelEnd := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancelEnd()
	switch {
	case !isTold && once.State == store.OnceBegun && !slices.ContainsFunc(answers, func(answer store.Answer) bool { return errors.Is(answer.Err, store.ErrUnknown) }):
		err = once.Forget(end)
	case isOpen:
		err = once.LetGo(end)
	default:
		text, _ := json.Marshal(codes) // It never fails.
		if err = once.Answered(end, text); err == nil {
			a.in("is answered", func() { a.w.model.told(lives, codes) })
			return true
		}
	}
	a.answered(name+" ends", err)
	return false
}

// told judges the answer of a request under an idempotency key.
func (m *model) told(lives []*life, codes []store.Code) {
	for i, l := range lives {
		switch isCreated := codes[i] == store.Created || codes[i] == store.Replaced; {
		case isCreated && l.created == 0:
			m.w.fail("I1: %s was accepted, and never was in Redis", l)
		case !isCreated && l.created > 0 && !l.isLoose && !m.was(l.began, "wipe"): // It takes the record along.
			m.w.fail("I10: %s is said to be %d under its idempotency key, and was created", l, codes[i])
		case isCreated:
			l.accepted = m.w.now()
		default:
			l.isNever = l.created == 0
		}
	}
}
