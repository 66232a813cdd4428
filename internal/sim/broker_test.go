package sim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// broker stores what it is given, one of a chain after the other, as a sink must.
type broker struct {
	w      *world
	modes  map[string]string // of topics, what is the matter with them
	isDown bool
	isSlow bool
}

func (b *broker) start(w *world) { b.w, b.modes = w, map[string]string{} }

var errBroker = errors.New("the broker said so")

// sink is how a host publishes.
type sink struct {
	sinks.Sink
	h *host
}

// Route implements [sinks.Sink].
func (s *sink) Route(m *message.Message) sinks.Route { return sinks.Route(m.Topic) }

// Publish implements [sinks.Sink].
func (s *sink) Publish(ctx context.Context, batch []message.Message, outcomes *sinks.Outcomes) {
	p := &publish{w: s.h.w, h: s.h, batch: batch, outcomes: outcomes, left: len(batch), done: make(chan struct{}), chains: sinks.NewChains(batch)}
	var order strings.Builder
	order.WriteString(s.h.name + " publish")
	for i := range batch {
		fmt.Fprintf(&order, " %s/%s %d", batch[i].Key, batch[i].ID, batch[i].Attempt)
	}
	p.h.w.ask(order.String(), p.begin)
	select {
	case <-p.done:
		return
	case <-ctx.Done():
	}
	p.h.w.ask(order.String()+" cut", p.cut)
	<-p.done
}

// publish is one call of a sink.
type publish struct {
	w        *world
	h        *host
	batch    []message.Message
	outcomes *sinks.Outcomes
	chains   *sinks.Chains
	left     int
	done     chan struct{}
	underWay []func() // ends what was handed over
	isCut    bool
}

func (p *publish) begin() {
	p.h.count()
	if p.h.dead() {
		p.cut()
		return
	}
	for _, i := range p.chains.Heads() {
		p.hand(i, true)
	}
}

// cut ends what is under way, as when ctx ends.
func (p *publish) cut() {
	p.isCut = true
	for _, end := range p.underWay {
		end()
	}
	p.rest(-1)
}

func (p *publish) report(i int, o sinks.Outcome) {
	if !p.outcomes.Report(i, o) {
		return
	}
	p.w.tell(fmt.Sprintf("  %s of %s: %s %s", p.batch[i].ID, p.h.name, o.Class, o.Reason))
	p.w.model.outcome(&p.batch[i], o)
	if p.left--; p.left == 0 {
		close(p.done)
	}
}

// rest gives up what was not handed over: of the chain of i, or of all.
func (p *publish) rest(i int) {
	o := sinks.Failed(sinks.Unavailable, sinks.ReasonConnection, errBroker)
	if i < 0 {
		for n := range p.batch {
			p.report(n, o)
		}
		return
	}
	for _, n := range p.chains.Rest(i) {
		p.report(n, o)
	}
}

// hand hands a message over. The first of a chain, and not those that follow it, leave as the poller says.
func (p *publish) hand(i int, isFirst bool) {
	m, w := &p.batch[i], p.w
	took, o, stores := w.broker.decide(m)
	took += max(0, p.h.stalled-w.now())
	copied := w.model.begins(m, isFirst)
	p.h.claimed(-2)
	isOver := false
	end := func(o sinks.Outcome, stores bool) {
		if isOver {
			return
		}
		isOver = true
		if stores {
			w.tell(fmt.Sprintf("  stored %s/%s, attempt %d", m.Key, m.ID, m.Attempt))
			w.model.stores(p.h, m, copied)
		}
		p.report(i, o)
		if p.isCut {
			return
		}
		switch o.Class {
		case sinks.Acknowledged, sinks.Retryable, sinks.Permanent:
			if next, ok := p.chains.Next(i); ok {
				p.hand(next, false)
			}
		case sinks.Unknown, sinks.Unavailable:
			p.rest(i)
		}
	}
	p.underWay = append(p.underWay, func() { end(sinks.Failed(sinks.Unknown, sinks.ReasonTimeout, errBroker), w.chance(2)) })
	w.after(took, "", func() {
		if p.h.dead() {
			end(sinks.Failed(sinks.Unknown, sinks.ReasonTimeout, errCut), stores && w.chance(2))
			return
		}
		end(o, stores)
	})
}

// decide says what becomes of a message, and after how long.
func (b *broker) decide(m *message.Message) (took time.Duration, o sinks.Outcome, stores bool) {
	w := b.w
	took = w.between(200*time.Microsecond, 20*time.Millisecond)
	fail := func(class sinks.Class, reason sinks.Reason) sinks.Outcome {
		return sinks.Failed(class, reason, errBroker)
	}
	if b.isDown {
		if w.chance(3) {
			return took, sinks.FailedWhole(sinks.Unknown, sinks.ReasonConnection, errBroker), w.chance(2)
		}
		return took, sinks.FailedWhole(sinks.Unavailable, sinks.ReasonConnection, errBroker), false
	}
	mode := b.modes[m.Topic]
	if mode == "" && b.isSlow {
		mode = "slow"
	}
	switch mode {
	case "hang":
		return 10 * time.Second, fail(sinks.Unknown, sinks.ReasonTimeout), w.chance(2)
	case "full":
		return took, fail(sinks.Unavailable, sinks.ReasonFull), false
	case "missing":
		return took, fail(sinks.Unavailable, sinks.ReasonTopicMissing), false
	case "nack":
		o := fail(sinks.Unknown, sinks.ReasonRefused)
		o.OfRoute = true
		return took, o, w.chance(2)
	case "slow":
		return took + time.Duration(w.random.IntN(3000))*time.Millisecond, sinks.Acked(), true
	}
	if w.plan.isCalm {
		return took, sinks.Acked(), true
	}
	switch w.random.IntN(80) {
	case 0:
		return took, fail(sinks.Retryable, sinks.ReasonRefused), false
	case 1:
		return took, fail(sinks.Unknown, sinks.ReasonTimeout), w.chance(2)
	case 2:
		if w.chance(4) {
			return took, fail(sinks.Permanent, sinks.ReasonInvalid), false
		}
	}
	return took, sinks.Acked(), true
}
