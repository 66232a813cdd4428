package api_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/operate"
)

// inletsOf are an inlet of that queue, of which much is known, and one of another queue, of which little is.
func inletsOf(queue string) operate.Inlets {
	behind := int64(3)
	const at = "2026-11-26T20:00:00.000Z"
	refused := &operate.InletRefusal{At: at, Position: "commands/1/2@3", ID: "a", Field: "delay-op", Reason: "no such operation"}
	view := func(name, queue string, state operate.InletState) operate.InletView {
		state.Since, state.Refused = at, refused
		return operate.InletView{
			InletSettings: operate.InletSettings{Name: name, Queue: queue, Sink: "events", Type: "rabbitmq", From: "commands", Group: "delaybridge-" + name}, InletState: state,
		}
	}
	return operate.Inlets{Instance: "bridge-1", Began: at, Inlets: []operate.InletView{
		view("mine", queue, operate.InletState{
			State: operate.InletWaiting, Cause: operate.CauseRedis, Reason: "connection refused", InHand: 1, Behind: &behind, BehindAt: at,
			Rate: &operate.InletRate{Over: 10, Done: 0.5}, Results: []operate.InletResult{{Op: "schedule", Result: "created", Count: 1}, {Result: "invalid", Count: 1}},
		}),
		view("theirs", "other", operate.InletState{State: operate.InletConsuming, Results: []operate.InletResult{}}),
	}}
}

// TestInletsSeen: a token sees the inlets of its queues, and of those the last refused message only if it may see all topics.
func TestInletsSeen(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{tokens: "limited-token-1 viewer queues=QUEUE\nof-topic-token-1 viewer queues=QUEUE topics=a\n" + viewerToken + " viewer\n"})
	look := func(token string) map[string]map[string]any {
		answer := s.call("GET", "/inlets", nil, bearer(token)...)
		require.Equal(t, http.StatusOK, answer.status)
		var body struct {
			Instance string
			Inlets   []map[string]any
		}
		require.NoError(t, json.Unmarshal(answer.body, &body))
		assert.Equal(t, "bridge-1", body.Instance)
		seen := map[string]map[string]any{}
		for _, inlet := range body.Inlets {
			name, isText := inlet["name"].(string)
			require.True(t, isText)
			seen[name] = inlet
		}
		return seen
	}
	all := look(viewerToken)
	assert.Len(t, all, 2)
	assert.InDelta(t, 3, all["mine"]["behind"], 0)
	assert.NotContains(t, all["theirs"], "behind", "what is not known is not 0")
	assert.NotContains(t, all["theirs"], "rate")
	limited := look("limited-token-1")
	assert.Len(t, limited, 1)
	assert.Contains(t, limited["mine"], "refused")
	assert.NotContains(t, look("of-topic-token-1")["mine"], "refused")
}
