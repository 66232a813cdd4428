package statespace_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv/statespace"
)

// TestWalks takes each step of two actors that are alike, by their own names.
func TestWalks(t *testing.T) {
	t.Parallel()
	g := &statespace.Graph{
		States:  []json.RawMessage{[]byte(`{"a":0,"b":0}`), []byte(`{"a":0,"b":1}`), []byte(`{"a":1,"b":1}`)},
		Actions: []string{"up", "down"},
		Alike:   [][2]string{{"a", "b"}},
		Edges:   []statespace.Edge{{0, 1, 0, 0}, {0, 1, 0, 1}, {1, 2, 0, 0}, {1, 0, 1, 0}, {2, 1, 1, 0}, {2, 1, 1, 1}},
	}
	walks := g.Walks()
	sum := map[string]int{}
	for _, walk := range walks {
		at := map[string]int{"a": 0, "b": 0}
		for _, step := range walk {
			var next map[string]int
			require.NoError(t, json.Unmarshal(step.State, &next))
			change := next["a"] + next["b"] - at["a"] - at["b"]
			require.Equal(t, map[string]int{"up": 1, "down": -1}[step.Action], change, "one of them moves")
			require.False(t, next["a"] != at["a"] && next["b"] != at["b"])
			at = next
			sum[step.Action]++
		}
	}
	require.GreaterOrEqual(t, sum["up"], 3)
	require.GreaterOrEqual(t, sum["down"], 3)
}
