package batch

import (
	"errors"
	"fmt"
	"testing"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/decision"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// TestVerdictTable takes all that the verdict on a message depends on.
func TestVerdictTable(t *testing.T) {
	t.Parallel()
	retry := Retry{Attempts: 3}
	outcomes := map[string]sinks.Outcome{
		"undecodable": {}, "permanent": {Class: sinks.Permanent}, "retryable": {Class: sinks.Retryable},
		"failed halfway": {Class: sinks.Retryable, MaybeOut: true}, "unavailable": {Class: sinks.Unavailable},
		"unknown": {Class: sinks.Unknown}, "panic of one": noOutcome(errors.New("p"), 1), "panic of several": noOutcome(errors.New("p"), 2),
	}
	verbs := map[message.Verb]string{message.VerbRelease: "release", message.VerbRetry: "retry", message.VerbDeadLetter: "dead letter"}
	decision.Walk(t, "verdict.go", []decision.Input{
		decision.Or("outcome", "undecodable", "permanent", "retryable", "failed halfway", "unavailable", "unknown", "panic of one", "panic of several"),
		decision.Or("of", "message", "route", "sink"), decision.Bool("route is down"),
		decision.Or("refusals", "fewer", "last"), decision.Or("unknowns", "fewer", "last"),
	}, func(c decision.Case) string {
		claimed := &message.ClaimedMessage{Attempts: message.Attempts{Failures: 1, Unknowns: unknownsPerFailure - 2}}
		if c["refusals"] == "last" {
			claimed.Attempts.Failures++
		}
		if c["unknowns"] == "last" {
			claimed.Attempts.Unknowns++
		}
		if c["outcome"] == "undecodable" {
			claimed.Err = message.ErrMissingBody
		}
		outcome := outcomes[c["outcome"]]
		outcome.OfRoute, outcome.Whole = c["of"] == "route", c["of"] == "sink"
		v := retry.Decide(claimed, outcome, c.Is("route is down"), 0)
		return fmt.Sprintf("%s | %+d | %+d", verbs[v.Verb], v.Attempts.Failures-claimed.Attempts.Failures, v.Attempts.MaybeOut-claimed.Attempts.MaybeOut)
	})
}

// TestChainTables takes what becomes of the later messages of a Key and Topic, and when the earlier ones leave their chain.
func TestChainTables(t *testing.T) {
	t.Parallel()
	claim := Claim{Claim: message.Claim{Messages: make([]message.ClaimedMessage, 1)}}
	count := func(isSet bool) int32 {
		if isSet {
			return 1
		}
		return 0
	}
	decision.Walk(t, "flight.go", []decision.Input{decision.Bool("some have no verdict"), decision.Bool("one goes back")}, func(c decision.Case) string {
		f, b := NewFlight(nil), newBatch(claim)
		later := &segment{batch: b}
		f.follow(later, &segment{open: count(c.Is("some have no verdict")), broken: c.Is("one goes back")})
		switch _, _, back := f.Next(); {
		case len(back) > 0:
			return "go back, too"
		case later.isBehind:
			return "wait"
		}
		return "may be published"
	})
	decision.Walk(t, "flight.go", []decision.Input{
		decision.Bool("one goes back"), decision.Bool("it is on its way"), decision.Bool("a claim has no answer"),
	}, func(c decision.Case) string {
		if c.Is("it is on its way") && !c.Is("one goes back") {
			return ""
		}
		f := NewFlight(nil)
		s := &segment{broken: c.Is("one goes back"), away: count(c.Is("it is on its way"))}
		if f.last[s.chain] = s; c.Is("a claim has no answer") {
			f.BeginClaim()
		}
		if f.pass(s); s.hasLeft {
			return "now"
		}
		if f.EndClaim(); s.hasLeft {
			return "once it is answered"
		}
		return "once it is there"
	})
}
