package routes

import (
	"testing"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/decision"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// TestRouteTable lets everything happen to a route in each state.
func TestRouteTable(t *testing.T) {
	t.Parallel()
	const patience = time.Minute
	now := time.Unix(1<<30, 0)
	missing := sinks.Failed(sinks.Unavailable, sinks.ReasonTopicMissing, nil)
	closes := func(r *Route) { r.fail(missing, 0, now) }
	messages := make([]message.ClaimedMessage, 1)
	events := map[string]func(*Route){
		"an outcome of it says that it is closed":             closes,
		"another one after too long":                          func(r *Route) { closes(r); r.giveUp(now, patience) },
		"the broker takes a message of the slot":              func(r *Route) { r.succeed() },
		"the broker takes one of a claim and not another":     func(r *Route) { r.failed = true; r.succeed() },
		"an answer to a message that hung":                    func(r *Route) { r.hangEnded(true, 0) },
		"a message that hung ends without one":                func(r *Route) { r.hangEnded(false, 0) },
		"a claim empties the slot":                            func(r *Route) { r.claimed(&Probe{}, messages, true, "r", 0) },
		"a claim finds the slot empty":                        func(r *Route) { r.claimed(&Probe{}, nil, true, "r", 0) },
		"a claim leaves some in the slot":                     func(r *Route) { r.claimed(&Probe{}, messages, false, "r", 0) },
		"a claim empties the slot as one is on its way there": func(r *Route) { r.send(); r.claimed(&Probe{}, messages, true, "r", 0) },
		"its topic is paused":                                 func(r *Route) { r.hold("t", now) },
		"its topic is resumed":                                (*Route).resume,
		"the rate of its topic is used up":                    func(r *Route) { r.throttle("t", now) },
		"the slot is put back into":                           func(r *Route) { r.reopen(0) },
		"another patience":                                    (*Route).tryAgain,
	}
	states := map[string]state{"open": open, "down": down, "back": back, "givenUp": givenUp, "paused": paused}
	decision.Walk(t, "route.go", []decision.Input{
		decision.Or("what happens", decision.Names(events)...), decision.Or("state", decision.Names(states)...),
	}, func(c decision.Case) string {
		if c["what happens"] == "the rate of its topic is used up" && c["state"] != "open" {
			return "" // What is closed takes the message before that.
		}
		r := newRoute("r", 1, now.Add(-2*patience), wait.Backoff{Initial: time.Second, Limit: time.Second})
		r.state, r.cause, r.hung = states[c["state"]], missing, 0
		if r.state == paused {
			r.cause.Reason = reasonPaused
		}
		events[c["what happens"]](r)
		for name, s := range states {
			if s == r.state {
				return name
			}
		}
		return "another"
	})
}
