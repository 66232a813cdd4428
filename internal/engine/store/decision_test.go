package store

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/testenv/decision"
)

// redisError is an error that Redis has replied.
type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

// TestCallTable: what is known of a call after each end of a run.
func TestCallTable(t *testing.T) {
	t.Parallel()
	failed := func(err error, isLast bool) func(*run) {
		return func(r *run) { r.last = isLast; r.failed(&verb{asks: true}, err) }
	}
	events := map[string]func(*run){
		"was answered":                       func(r *run) { r.calls[0].created(0, nil) },
		"did not happen":                     failed(redisError("LOADING Redis is loading the dataset in memory"), true),
		"has no reply and only asked":        failed(io.EOF, false),
		"has no reply":                       failed(io.EOF, true),
		"met a full Redis":                   failed(redisError("OOM command not allowed"), true),
		"was refused for good":               failed(redisError("ERR no"), true),
		"missed its span":                    func(r *run) { r.missed(r.calls[0].endsMs - 1) },
		"missed it when traces were gone":    func(r *run) { r.missed(r.calls[0].endsMs) },
		"is not made again as ctx has ended": func(r *run) { r.calls[0].giveUp(context.Canceled) },
	}
	states := map[string]state{"unsent": unsent, "maybeRan": maybeRan}
	decision.Walk(t, "call.go", []decision.Input{
		decision.Or("its state", decision.Names(states)...), decision.Or("its run", decision.Names(events)...),
	}, func(d decision.Case) string {
		before := states[d["its state"]]
		if before == unsent && d["its run"] == "missed it when traces were gone" {
			return "" // There are none.
		}
		c := newCall("id", "", "token", nil)
		c.start, c.visit = &start{at: time.Now()}, visit{homes: []int{0}}
		if c.state = before; before == maybeRan {
			c.endsMs = 1000
		}
		events[d["its run"]](&run{calls: []*call{c}})
		result := map[state]string{unsent: "unsent", maybeRan: "maybeRan", answered: "answered"}[c.state]
		if c.state == before && d["its run"] != "has no reply" {
			result = "as before"
		}
		for name, err := range map[string]error{"ErrUnknown": ErrUnknown, "ErrFull": ErrFull, "ErrUnavailable": ErrUnavailable} {
			if errors.Is(c.answer.Err, err) && (name == "ErrUnknown" || !errors.Is(c.answer.Err, ErrUnknown)) {
				return result + " | " + name
			}
		}
		if c.state == answered {
			return result + " | that"
		}
		return result + " | none"
	})
}
