package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/delaybridge/delaybridge/internal/poller"
)

// live is the whole story.
func (w *world) live() {
	p := w.plan
	p.producers = []*producer{w.startProducer("producer1", true), w.startProducer("producer2", false), w.startProducer("producer3", false)}
	p.operator = w.startOperator()
	for range p.bridges {
		w.startBridge()
	}
	for _, d := range p.decisions {
		w.after(d.at, fmt.Sprintf("decision %d: %s", d.index, d.kind), func() {
			if w.isOver || w.healed {
				return
			}
			if d.kind == "burst" {
				w.burst(d)
			} else {
				w.trouble(d)
			}
		})
	}
	for at := 10 * time.Second; at <= p.span && !w.hasFailed(); at += 10 * time.Second {
		if *until > 0 && at >= *until+10*time.Second {
			w.fail("cut short")
		}
		lines := w.lines
		if w.run(at); w.lines > lines {
			w.model.sound()
		}
	}
	isHealed, healed := w.heal(), w.now()
	for w.now() < healed+simSettle && !w.hasFailed() {
		w.run(w.now() + 10*time.Second)
		w.model.untold(healed)
	}
	w.model.overdue(simSettle)
	w.model.overdueRows(simSettle)
	for until := w.now() + simHealed; w.now() < until && (!isClosed(isHealed) || w.model.waits()+len(w.model.openRows())+w.model.ledgers() > 0) && !w.hasFailed(); {
		w.run(w.now() + 10*time.Second)
		w.model.untold(healed)
	}
	if n := w.model.waits(); n > 0 {
		w.fail("I7: %d messages wait %s after all trouble was over", n, simHealed)
	}
	w.ended = w.now()
	w.end()
	if !w.hasFailed() {
		w.model.sound()
		w.model.check()
		w.model.checkRows()
		w.model.traces.check()
	}
}

// heal ends all trouble: what is left in the queue of events to end it changes nothing. It returns a channel that is closed once
// all settings are as they were.
func (w *world) heal() chan struct{} {
	done := make(chan struct{})
	w.tell("healed")
	w.healed = true
	w.database.heal()
	w.broker.isDown, w.broker.isSlow, w.redis.isFlaky, w.redis.isSlow, w.redis.replicas = false, false, false, false, true
	w.redis.leave(false)
	clear(w.broker.modes)
	w.redis.set(0)
	w.rate(poller.Rates{})
	w.actor("healer", rand.New(rand.NewPCG(1, 1)), func(a *actor) {
		defer close(done)
		for _, topic := range append([]string{""}, simTopics...) {
			a.resume(topic)
		}
		a.rest(time.Minute)
		a.unlimit()
		a.adopt()
		if len(w.model.series) > 0 {
			a.rest(40 * time.Second)
			a.stillFires()
			a.endRecurrings()
		}
	})
	if len(w.plan.fleet.all) == 0 {
		w.startBridge()
	}
	return done
}

// end stops everything, and waits until all goroutines have ended.
func (w *world) end() {
	w.isOver = true
	for _, b := range slices.Clone(w.plan.fleet.all) {
		if w.hasFailed() {
			b.crash()
			continue
		}
		b.drain(20*time.Second, func(err error) {
			if err != nil {
				w.fail("I13: %s: %s", b.h.name, err)
			}
		})
	}
	over := make(chan struct{})
	go func() {
		w.plan.actors.Wait()
		close(over)
	}()
	if w.hasFailed() {
		for _, h := range w.hosts {
			h.die()
		}
	}
	w.drainEvents(over)
	for _, c := range w.plan.clients {
		_ = c.Close()
	}
	_ = w.plan.operator.rdb.Close()
	time.Sleep(5 * time.Minute) //nolint:forbidigo // the bubble's clock: what was cut off ends by itself
	w.database.close()
}

// drainEvents goes on until all actors and bridges have ended.
func (w *world) drainEvents(over chan struct{}) {
	failed := w.failed
	w.failed = ""
	for until := w.now() + 30*time.Minute; w.now() < until; {
		w.run(w.now() + time.Second)
		if failed == "" {
			failed = w.failed
		}
		w.failed = ""
		if isClosed(over) && !slices.ContainsFunc(w.plan.fleet.ever, func(b *bridge) bool { return !isClosed(b.gone) }) {
			break
		}
	}
	w.failed = failed
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
