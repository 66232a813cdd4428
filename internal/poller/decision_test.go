package poller

import (
	"testing"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/decision"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/poller/routes"
)

// TestPlannerTables: what a shard calls next, and what a claim takes.
func TestPlannerTables(t *testing.T) {
	t.Parallel()
	at := func(now time.Duration, isNow bool) time.Duration {
		if isNow {
			return now
		}
		return wait.Never
	}
	decision.Walk(t, "planner.go", []decision.Input{
		decision.Bool("Redis is left alone"), decision.Bool("a request has no answer"), decision.Bool("draining"), decision.Bool("what is parked is known"),
		decision.Bool("something can be taken"), decision.Bool("the lease is to be renewed"),
	}, func(c decision.Case) string {
		m := newMachine(t)
		p, now := m.planner, m.now
		p.quietUntil, p.takeAt, p.renewAt = now, at(now, c.Is("something can be taken")), at(now, c.Is("the lease is to be renewed"))
		if c.Is("Redis is left alone") {
			p.quietUntil = now + 1
		}
		var before *message.ClaimRequest
		if p.pending = nil; c.Is("a request has no answer") {
			before = &message.ClaimRequest{}
			p.pending = before
		}
		p.isDraining, p.unloaded = c.Is("draining"), !c.Is("what is parked is known")
		switch do, _ := p.next(now); {
		case do == actionNone:
			return "nothing"
		case do == actionParked:
			return "what is parked"
		case before != nil && p.pending == before:
			return "the same claim again"
		case p.pending.Max == 0:
			return "a claim of nothing"
		}
		return "a claim"
	})
	decision.Walk(t, "planner.go", []decision.Input{
		decision.Bool("it may take"), decision.Bool("what is parked is known"), decision.Bool("something is due"), decision.Bool("that waits for parking"),
		decision.Bool("a slot is ready"), decision.Bool("its turn"), decision.Bool("its route is known"),
	}, func(c decision.Case) string {
		m := newMachine(t)
		p, now := m.planner, m.now
		p.takes, p.unloaded, p.isBlocked, p.slotNext = c.Is("it may take"), !c.Is("what is parked is known"), c.Is("that waits for parking"), c.Is("its turn")
		p.takeAt = at(now, c.Is("something is due"))
		if p.slot = nil; c.Is("a slot is ready") {
			p.slot = &routes.Probe{Size: 1, IsNameless: !c.Is("its route is known")}
		}
		switch allowed, from := p.pick(now); {
		case allowed.Messages == 0:
			return "nothing"
		case from != nil:
			return "the slot"
		}
		return "what is due"
	})
}
