package api_test

import (
	"maps"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/operate"
)

// TestUsage: what queues take and have published, each and by owner; a caller has the sums of what it may see, and what one queue does not tell is in
// no sum.
func TestUsage(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{tokens: `
team-token-1 viewer name=team queues=other
` + producerToken + ` producer
` + operatorToken + ` operator
`})
	operator := bearer(operatorToken)
	schedule := func(id, at string) {
		s.call("POST", "/queues/QUEUE/messages", map[string]any{"id": id, "topic": "t", "at": at}, operator...).is(http.StatusCreated)
	}
	for _, id := range []string{"a", "b"} {
		schedule(id, longAgo)
	}
	s.settle(message.Verdict{Verb: message.VerbAck})
	for _, id := range []string{"c", "d", "e"} {
		schedule(id, "2031-01-01T00:00:00Z")
	}
	name := s.queue.Name()
	queues := maps.Clone(*s.queues.Load())
	other := storetest.New(t, s.rdb, 2)
	queues["other"] = &operate.Queue{Name: "other", Sink: "events", Store: other, File: "/teams/x.yaml"}
	s.queues.Store(&queues)

	used, err := inspect.NewAdmin(s.queue).Used(t.Context())
	require.NoError(t, err)
	u := s.call("GET", "/usage", nil, operator...).is(http.StatusOK)
	owners := u["owners"].([]any)
	require.Len(t, owners, 2)
	ann, none := owners[0].(map[string]any), owners[1].(map[string]any)
	assert.Equal(t, "ann", ann["owner"])
	assert.NotContains(t, none, "owner")
	want := map[string]any{"waiting": 3.0, "in_flight": 0.0, "dead": 0.0, "bytes": float64(used), "scheduled": 5.0, "published": 2.0}
	queue := ann["queues"].([]any)[0].(map[string]any)
	assert.Equal(t, name, queue["name"])
	assert.NotEmpty(t, queue["counted_since"])
	for figure, n := range want {
		assert.InDelta(t, n, ann[figure], 0, figure)
		assert.InDelta(t, n, queue[figure], 0, figure)
		assert.InDelta(t, 0, none[figure], 0, figure)
	}
	assert.Equal(t, want, u["total"])
	assert.Equal(t, []any{1.0, 1.0, 0.0, 0.0}, []any{ann["bytes_share"], ann["published_share"], none["bytes_share"], none["published_share"]})

	mine := s.call("GET", "/usage", nil, bearer("team-token-1")...).is(http.StatusOK)
	require.Len(t, mine["owners"], 1)
	assert.Equal(t, map[string]any{"waiting": 0.0, "in_flight": 0.0, "dead": 0.0, "bytes": 0.0, "scheduled": 0.0, "published": 0.0}, mine["total"])
	assert.NotContains(t, mine["owners"].([]any)[0], "bytes_share", "there is nothing to have a part of")
	s.call("GET", "/usage", nil, bearer(producerToken)...).refused(http.StatusForbidden, "forbidden")

	// A shard's counters are lost with it: a part of the sum is no sum.
	require.NoError(t, s.rdb.Del(t.Context(), other.Keys().Shard(1).Meta).Err())
	require.Eventually(t, func() bool {
		u = s.call("GET", "/usage", nil, operator...).is(http.StatusOK)
		_, isKnown := u["total"].(map[string]any)["published"]
		return !isKnown
	}, patience, tick)
	none = u["owners"].([]any)[1].(map[string]any)
	assert.NotContains(t, none, "scheduled")
	assert.InDelta(t, 0, none["waiting"], 0)
	assert.NotContains(t, u["owners"].([]any)[0], "published_share")
	assert.InDelta(t, 2, u["owners"].([]any)[0].(map[string]any)["published"], 0)
}

// TestSources: a queue tells which file declares it.
func TestSources(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	main := (*s.queues.Load())[s.queue.Name()]
	of := func(file string) []any {
		queue := *main
		queue.File = file
		s.queues.Store(&map[string]*operate.Queue{queue.Name: &queue})
		view := s.call("GET", "/queues/QUEUE", nil).is(http.StatusOK)
		return []any{view["source"], view["file"]}
	}
	assert.Equal(t, []any{"main", nil}, of(""))
	assert.Equal(t, []any{"file", "/teams/x.yaml"}, of("/teams/x.yaml"))
	assert.Equal(t, []any{"api", nil}, of("api:"+s.queue.Name()))
}
