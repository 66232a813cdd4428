package auditor

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/decision"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// TestComparisonTable: what becomes of a row by each answer of Redis.
func TestComparisonTable(t *testing.T) {
	t.Parallel()
	answers := map[string][]store.Answer{
		"knows nothing":                {{Code: store.Absent}},
		"has it now":                   {{Code: store.Created}},
		"has it":                       {{Code: store.Mine}},
		"published it":                 {{Code: store.EndedPublished}},
		"cancelled it":                 {{Code: store.EndedCancelled}},
		"cancelled it with a copy out": {{Code: store.EndedMaybe}},
		"moved it":                     {{Code: store.EndedMoved}},
		"has another that waits":       {{Code: store.Waiting}},
		"has another in flight":        {{Code: store.InFlight}},
		"has no answer":                {{Err: errors.New("timeout"), Code: store.Absent}, {Err: store.ErrUnknown}},
		"could never take it":          {{}},
	}
	answers["says anything else"] = storetest.Others(answers)
	decision.Walk(t, "comparison.go", []decision.Input{decision.Or("Redis", decision.Names(answers)...), decision.Bool("dry run")}, func(c decision.Case) string {
		if c["Redis"] == "has it now" && c.Is("dry run") {
			return "" // It only asks.
		}
		var all []string
		for _, answer := range answers[c["Redis"]] {
			x, r := &comparison{dry: c.Is("dry run"), missing: new(atomic.Bool)}, &table.Row{}
			var n Counts
			if c["Redis"] == "could never take it" {
				n = x.answer(r, nil)
			} else {
				x.ask([]*table.Row{r})
				n = x.asked([]store.Answer{answer})
			}
			all = append(all, found(n, x.next(time.Now())))
		}
		return decision.Same(all...)
	})
}

// found is what was counted, or is to be done for the row, in the words of the table.
func found(n Counts, a action) string {
	switch {
	case a.kind == actionRead:
		return "is read again, and put"
	case a.kind == actionTell && a.fates[0].Maybe:
		return fmt.Sprintf("is told: %s with a copy out", a.fates[0].State)
	case a.kind == actionTell:
		return fmt.Sprintf("is told: %s", a.fates[0].State)
	case a.kind == actionRenew:
		return "replaces that if it may"
	case a.kind == actionPause:
		return "is compared again"
	case n == Counts{PutBack: 1}:
		return "counts as put back"
	case n == Counts{There: 1}:
		return "is there"
	case n == Counts{Settled: 1}:
		return "counts as settled"
	case n == Counts{Skipped: 1}:
		return "is left to the relay"
	case n == Counts{Blocked: 1}:
		return "is blocked"
	}
	return fmt.Sprint(n, a)
}

// TestTurnsTable: which rows a tick compares, and how many.
func TestTurnsTable(t *testing.T) {
	t.Parallel()
	const rate = 20
	counts := map[string]int{"none": 0, "half of the rate": rate / 2, "more": rate}
	words := map[int]string{rate: "all of the rate", rate / 2: "half of it", 1: "one"}
	decision.Walk(t, "turns.go", []decision.Input{
		decision.Bool("overdue rows are due"), decision.Bool("the others are due"), decision.Or("overdue ones were compared", decision.Names(counts)...),
	}, func(c decision.Case) string {
		now := time.Unix(1<<30, 0)
		turns := newTurns(rate, time.Minute, table.Cursor{}, now)
		for _, r := range turns.rounds {
			if r.overdue && !c.Is("overdue rows are due") || !r.overdue && !c.Is("the others are due") {
				r.due = now.Add(1)
			}
		}
		if !c.Is("overdue rows are due") && c["overdue ones were compared"] != "none" {
			return ""
		}
		compared := map[bool]string{true: "none", false: "none"}
		for r, most := turns.next(now); r != nil; r, most = turns.next(now) {
			compared[r.overdue] = words[most]
			turns.stepped(r, now, now, min(rate, counts[c["overdue ones were compared"]]), 0, r.after, false)
		}
		return compared[true] + " | " + compared[false]
	})
}
