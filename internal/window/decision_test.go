package window

import (
	"strconv"
	"testing"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/testenv/decision"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

// TestHealthTables: when a sink counts as down, and how it is probed then.
func TestHealthTables(t *testing.T) {
	t.Parallel()
	now := time.Unix(1<<30, 0)
	events := map[string]func(*health){
		"the whole sink fails":          func(h *health) { h.fail(now) },
		"it answers":                    func(h *health) { h.answer(now) },
		"nobody has tried it for 15 s":  func(h *health) { h.forget(now.Add(15 * time.Second)) },
		"a probe is sent":               func(h *health) { h.probed(now, true) },
		"a probe finds nothing to send": func(h *health) { h.probed(now, false) },
	}
	decision.Walk(t, "window.go", []decision.Input{decision.Or("what happens", decision.Names(events)...), decision.Bool("down")}, func(c decision.Case) string {
		h := &health{pause: wait.Backoff{Initial: downFirst, Limit: downMost}}
		if c.Is("down") {
			h.fail(now)
		}
		events[c["what happens"]](h)
		return map[bool]string{true: "yes", false: "no"}[h.down]
	})
	decision.Walk(t, "window.go", []decision.Input{
		decision.Or("since the last probe", "less than the pause", "the pause"), decision.Or("probes had no answer", "0", "1", "2", "3", "4", "5", "6"),
	}, func(c decision.Case) string {
		h := &health{pause: wait.Backoff{Initial: downFirst, Limit: downMost}}
		h.fail(now)
		for range c["probes had no answer"][0] - '0' {
			h.probed(now, true)
		}
		at := h.retryAt
		if c["since the last probe"] == "less than the pause" {
			at = at.Add(-1)
		}
		return strconv.Itoa(h.probe(at))
	})
}
