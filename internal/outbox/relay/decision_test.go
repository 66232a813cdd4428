package relay

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/decision"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// TestOwnerTable: which Redis the rows belong to.
func TestOwnerTable(t *testing.T) {
	t.Parallel()
	const lapse = time.Minute
	decision.Walk(t, "lives.go", []decision.Input{
		decision.Or("the table's life", "ours", "another"), decision.Bool("seen in our Redis"),
		decision.Or("its bridges", "write", "are quiet", "are gone"), decision.Or("our Redis was made", "after them", "beside them"),
	}, func(c decision.Case) string {
		wrote := time.Unix(1<<30, 0)
		o, life, now := &owner{}, table.Life{Name: c["the table's life"], Seen: wrote}, wrote
		if c.Is("seen in our Redis") {
			o.confirm("another")
		}
		o.rule(now, lapse, "ours", life)
		switch c["its bridges"] {
		case "write":
			now, life.Seen = now.Add(lapse), wrote.Add(lapse)
		case "are quiet":
			now = now.Add(lapse - 1)
		default:
			now = now.Add(lapse)
		}
		born := life.Seen
		if c["our Redis was made"] == "beside them" {
			born = born.Add(-beside - 1)
		}
		switch ruled := o.rule(now, lapse, "ours", life); {
		case ruled == rulingOurs:
			return "are ours"
		case ruled == rulingEmptied:
			return "move to ours at once"
		case ruled == rulingOther:
			return "are refused"
		case o.isEmptied(born):
			return "move to ours"
		}
		return "are refused until an operator decides"
	})
}

// TestLaneTable: what a lane does next.
func TestLaneTable(t *testing.T) {
	t.Parallel()
	decision.Walk(t, "lane.go", []decision.Input{
		decision.Bool("it has failed"), decision.Bool("it has looked"), decision.Bool("batches are left"),
		decision.Bool("its clock is old"), decision.Bool("one was taken"), decision.Bool("there is more"),
	}, func(c decision.Case) string {
		now := time.Unix(1<<30, 0)
		l := newLane(&Config{Poll: time.Second, Lanes: 1}, []string{"q"}, 0, new(lookout))
		if c.Is("it has failed") {
			l.failed(nil, context.DeadlineExceeded)
		}
		if c.Is("it has looked") {
			l.view = &view{}
		}
		if c.Is("batches are left") {
			l.steps = []*step{{}}
		}
		l.outlook.read = now.Add(-readWithin)
		if c.Is("its clock is old") {
			l.outlook.read = l.outlook.read.Add(-1)
		}
		l.isBegun, l.more = c.Is("one was taken"), c.Is("there is more")
		switch a := l.next(now); {
		case a.failed:
			return "back off"
		case a.view != nil:
			return "look"
		case a.step != nil:
			return "take a batch"
		case a.more:
			return "wake the others"
		}
		return "rest"
	})
}

// TestJudgeTable: what follows for rows from each answer of Redis.
func TestJudgeTable(t *testing.T) {
	t.Parallel()
	answers := map[string][]store.Answer{
		"did not answer":            {{Err: errors.New("timeout")}, {Err: store.ErrUnknown}},
		"refused it for good":       {{Err: &message.InvalidError{}}},
		"did it":                    {{Code: store.Done}},
		"did it with a copy out":    {{Code: store.DoneMaybePublished}},
		"is publishing it":          {{Code: store.InFlight}},
		"published it":              {{Code: store.EndedPublished}},
		"cancelled it":              {{Code: store.EndedCancelled}},
		"cancelled with a copy out": {{Code: store.EndedMaybe}},
		"knows nothing":             {{Code: store.NotFound}},
		"moved it by a later one":   {{Code: store.EndedMoved}},
		"has a letter without body": {{Code: store.NoBody}},
	}
	answers["says anything else"] = storetest.Others(answers)
	verbs := map[string]table.Verb{"cancel": table.VerbCancel, "reschedule": table.VerbReschedule, "replace": table.VerbReplace}
	decision.Walk(t, "judge.go", []decision.Input{
		decision.Or("operation", decision.Names(verbs)...), decision.Or("Redis", decision.Names(answers)...),
		decision.Bool("marked"), decision.Bool("doubtful"),
	}, func(c decision.Case) string {
		var all []string
		for _, answer := range answers[c["Redis"]] {
			all = append(all, inTheTable(judge(situation{verb: verbs[c["operation"]], marked: c.Is("marked"), maybe: c.Is("doubtful")}, answer)))
		}
		return decision.Same(all...)
	})
}

// inTheTable is a verdict in the words of the table.
func inTheTable(v verdict) string {
	operation := map[bool]string{true: "a message", false: strings.ReplaceAll(v.op.State.String(), "_", " ")}[v.op.Lives]
	if v.stop {
		operation = "not carried out"
	}
	var parts []string
	if v.head.State != table.StatePending {
		parts = append(parts, v.head.State.String())
	}
	if v.head.Move != nil {
		parts = append(parts, "moved")
	}
	if v.head.Maybe || v.head.Move != nil && v.head.Move.Maybe {
		parts = append(parts, "marked")
	}
	if v.head.IsZero() {
		parts = []string{"left"}
	}
	return operation + " | " + strings.Join(parts, ", ")
}
