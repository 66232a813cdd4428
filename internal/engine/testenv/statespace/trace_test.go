package statespace_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv/statespace"
)

// TestConsume consumes the trace of a message that is scheduled, has an unknown outcome, is rescheduled and cancelled, and no
// trace that was made untrue, nor one that is cut short.
func TestConsume(t *testing.T) {
	t.Parallel()
	whole := statespace.Trace{Steps: []statespace.TraceStep{
		{Is: "start", Call: 1, Verb: "schedule"},
		{Is: "run", Call: 1, Verb: "schedule", Says: "created", Asked: 1000, Due: 1001, Has: 1, Waits: true},
		{Is: "answer", Call: 1, Says: "unknown"},
		{Is: "claim", Claim: 1, Due: 1001, Now: 1002, Has: 1},
		{Is: "publish", Claims: []int{1}, Due: 1001},
		{Is: "settle", How: "back", Claim: 1, Due: 1001, Has: 1, Waits: true, Marked: true},
		{Is: "repeat", Call: 1},
		{Is: "run", Call: 1, Verb: "schedule", Second: true, Says: "created", Asked: 1000, Due: 1001, Has: 1, Waits: true, Marked: true},
		{Is: "start", Call: 2, Verb: "reschedule"},
		{Is: "run", Call: 2, Verb: "reschedule", Says: "maybe", Asked: 1500, Due: 1500, Has: 1, Waits: true, Marked: true},
		{Is: "answer", Call: 2, Says: "maybe"},
		{Is: "answer", Call: 1, Says: "created"},
		{Is: "start", Call: 3, Verb: "cancel"},
		{Is: "run", Call: 3, Verb: "cancel", Says: "maybe"},
		{Is: "answer", Call: 3, Says: "maybe"},
		{Is: "end"},
	}}
	require.Equal(t, len(whole.Steps), statespace.Consume(whole))
	for seed := range uint64(50) {
		for _, kind := range statespace.Kinds {
			m, ok := statespace.Mutate(whole, kind, rand.New(rand.NewPCG(seed, 1)))
			require.True(t, ok, kind)
			require.Less(t, statespace.Consume(m.Trace), len(m.Steps), "%s of step %d", kind, m.At+1)
		}
	}
	cut := statespace.Trace{Steps: append(whole.Steps[:6:6], statespace.TraceStep{Is: "end"})}
	require.Equal(t, 6, statespace.Consume(cut), "something is left")
}
