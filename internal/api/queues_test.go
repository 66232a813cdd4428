package api_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

// TestOverview tells what waits, is parked, is in flight and dead, and why a sink is down.
func TestOverview(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	for _, id := range []string{"a", "b", "c", "d"} {
		s.schedule(id, "at", longAgo)
	}
	s.schedule("later")
	since := time.UnixMilli(1_700_000_000_000)
	s.settle(message.Verdict{Verb: message.VerbPark, Slot: 3}, message.ParkedRoute{Slot: 3, Route: "order.timeout", Reason: "no such topic", Since: since})
	s.schedule("due", "at", longAgo)

	all := s.call("GET", "/queues", nil).is(http.StatusOK)
	assert.Equal(t, "bridge-1", all["instance"])
	queue := all["queues"].([]any)[0].(map[string]any)
	assert.Equal(t, s.queue.Name(), queue["name"])
	for field, want := range map[string]float64{"waiting": 6, "parked": 4, "due": 1, "in_flight": 0, "dead": 0, "shards": 2, "held": 2} {
		assert.InDelta(t, want, queue[field], 0, field)
	}
	assert.Greater(t, queue["oldest_due_age_s"], 3600.0, "longAgo")
	sink := all["sinks"].([]any)[0].(map[string]any)
	assert.Equal(t, []any{s.queue.Name()}, sink["queues"])
	assert.Equal(t, false, sink["up"])
	assert.Equal(t, []any{"connection refused", "2023-11-14T22:13:20.000Z"}, []any{sink["detail"], sink["since"]})
	require.Len(t, sink["routes"], 1, "over all shards")
	route := sink["routes"].([]any)[0].(map[string]any)
	assert.Equal(t, []any{"order.timeout", "no such topic", "2023-11-14T22:13:20.000Z", 4.0}, []any{route["route"], route["reason"], route["since"], route["messages"]})
	assert.Equal(t, all["sinks"], s.call("GET", "/sinks", nil).is(http.StatusOK)["sinks"])
	assert.InDelta(t, 6, s.call("GET", "/queues/QUEUE", nil).is(http.StatusOK)["waiting"], 0)

	parked := s.call("GET", "/queues/QUEUE/messages/a", nil).is(http.StatusOK)
	assert.Equal(t, []any{"parked", "order.timeout", "no such topic"}, []any{parked["state"], parked["route"], parked["reason"]})

	shards := s.call("GET", "/queues/QUEUE/shards", nil).is(http.StatusOK)
	require.Len(t, shards["shards"], 2)
	assert.Equal(t, "bridge-1", shards["shards"].([]any)[0].(map[string]any)["holder"])

	_, _, err := s.queue.Members().Heartbeat(t.Context(), "bridge-1/boot", time.Hour)
	require.NoError(t, err)
	instance := s.call("GET", "/instances", nil).is(http.StatusOK)["instances"].([]any)[0].(map[string]any)
	assert.Equal(t, []any{"bridge-1", "boot"}, []any{instance["instance"], instance["boot"]})
	assert.Equal(t, map[string]any{s.queue.Name(): []any{0.0, 1.0}}, instance["shards"])

	forecast := s.call("GET", "/queues/QUEUE/forecast?step=30m", nil).is(http.StatusOK)
	assert.InDelta(t, 5, forecast["due"], 0, "with those that are parked")
	assert.InDelta(t, 4, forecast["parked"], 0)
	require.Len(t, forecast["steps"], 48)
	assert.InDelta(t, 1, forecast["steps"].([]any)[1].(map[string]any)["messages"], 0, "later")
	assert.Positive(t, forecast["steps"].([]any)[1].(map[string]any)["bytes"])
	assert.InDelta(t, 6, forecast["message_bytes"].(map[string]any)["sampled"], 0)
	for query, field := range map[string]string{"step=x": "step", "from=x": "from", "step=1s": "", "to=2001-01-01T00:00:00Z": ""} {
		assert.Equal(t, field, s.call("GET", "/queues/QUEUE/forecast?"+query, nil).refused(http.StatusBadRequest, "invalid"), query)
	}
}

// TestDemand: what is due, and what falls due within the time, but nothing that is parked or paused.
func TestDemand(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	s.schedule("parked", "at", longAgo)
	s.settle(message.Verdict{Verb: message.VerbPark, Slot: 3}, message.ParkedRoute{Slot: 3, Route: "t", Reason: "no such topic", Since: time.Now()})
	s.schedule("due", "at", longAgo)
	s.schedule("soon", "in", "1m")
	s.schedule("later", "in", "10m")
	asked := func(query string, messages, due, upcoming float64, paused bool) {
		t.Helper()
		a := s.call("GET", "/queues/QUEUE/demand"+query, nil).is(http.StatusOK)
		assert.Equal(t, []any{messages, due, upcoming, 1.0, paused}, []any{a["messages"], a["due"], a["upcoming"], a["parked"], a["paused"]}, query)
	}
	asked("?within=0s", 1, 1, 0, false)
	asked("?within=5m", 2, 1, 1, false)
	asked("?within=1h", 3, 1, 2, false)
	s.call("POST", "/queues/QUEUE:pause", `{"topic": "other"}`).is(http.StatusOK)
	asked("?within=5m", 2, 1, 1, false)
	s.call("POST", "/queues/QUEUE:pause", nil).is(http.StatusOK)
	asked("?within=5m", 0, 1, 1, true)
	for _, wrong := range []string{"x", "-1s", "87841h"} {
		a := s.call("GET", "/queues/QUEUE/demand?within="+wrong, nil)
		assert.Equal(t, "within", a.refused(http.StatusBadRequest, "invalid"), wrong)
		assert.Contains(t, string(a.body), `within \"`+wrong)
	}
	assert.InDelta(t, 60, s.call("GET", "/queues/QUEUE/demand", nil).is(http.StatusOK)["within_s"], 0)
}

// TestUnconfirmedShards: a shard tells why nothing is published from it, as the bridge knows it.
func TestUnconfirmedShards(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	s.unconfirmed = []error{errors.New("0 of 1 replicas did")}
	shards := s.call("GET", "/queues/QUEUE/shards", nil).is(http.StatusOK)["shards"].([]any)
	assert.Equal(t, "0 of 1 replicas did", shards[0].(map[string]any)["unconfirmed"])
	assert.NotContains(t, shards[1], "unconfirmed")
}

// TestRooms: a queue tells how much its budget and Redis have left, where there is a limit.
func TestRooms(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	none := s.call("GET", "/queues/QUEUE", nil).is(http.StatusOK)
	assert.NotContains(t, none, "budget")
	assert.NotContains(t, none, "redis_memory")
	all := s.call("GET", "/queues", nil).is(http.StatusOK)
	assert.Empty(t, all["budgets"])
	assert.NotContains(t, all, "redis_memory")
	s.rooms = inspect.Rooms{
		Budget: &inspect.Room{Used: 600, Limit: 1000, FullAt: time.UnixMilli(1_700_000_000_000)}, Redis: &inspect.Room{Used: 5, Limit: 1 << 40},
	}
	queue := s.call("GET", "/queues/QUEUE", nil).is(http.StatusOK)
	assert.Equal(t, map[string]any{"used_bytes": 600.0, "limit_bytes": 1000.0, "full_at": "2023-11-14T22:13:20.000Z"}, queue["budget"])
	assert.Equal(t, map[string]any{"used_bytes": 5.0, "limit_bytes": float64(1 << 40)}, queue["redis_memory"], "it does not grow")
	assert.Equal(t, s.queue.Name(), queue["name"])
	all = s.call("GET", "/queues", nil).is(http.StatusOK)
	assert.Equal(t, map[string]any{s.queue.Name(): queue["budget"]}, all["budgets"])
	assert.Equal(t, queue["redis_memory"], all["redis_memory"])
}

// settle claims all that is due, and settles it with one verdict.
func (s *scene) settle(verdict message.Verdict, parks ...message.ParkedRoute) {
	s.t.Helper()
	for shard, claim := range s.claim() {
		settlement := message.Settlement{Claim: claim, Parks: parks}
		for range claim.Messages {
			settlement.Verdicts = append(settlement.Verdicts, verdict)
		}
		_, err := s.queue.Shard(shard).Settle(s.t.Context(), settlement)
		require.NoError(s.t, err)
	}
}

// TestPause of a queue and of a topic, seen in the overview and written down.
func TestPause(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	queue := s.call("POST", "/queues/QUEUE:pause", nil).is(http.StatusOK)
	assert.Equal(t, []any{"", true}, []any{queue["topic"], queue["paused"]})
	assert.Equal(t, queue["since"], s.call("POST", "/queues/QUEUE:pause", `{}`).is(http.StatusOK)["since"], "it was paused already")
	topic := s.call("POST", "/queues/QUEUE:pause", `{"topic": "order.timeout"}`).is(http.StatusOK)
	listed := s.call("GET", "/queues/QUEUE", nil).is(http.StatusOK)["paused"].([]any)
	for i, want := range []map[string]any{queue, topic} {
		assert.Equal(t, map[string]any{"topic": want["topic"], "paused": true, "since": want["since"], "by": "local"}, listed[i])
	}
	assert.Equal(t, "topic", s.call("POST", "/queues/QUEUE:pause", `{"topic": "a\u0000b"}`).refused(http.StatusBadRequest, "invalid"))
	resumed := s.call("POST", "/queues/QUEUE:resume", nil).is(http.StatusOK)
	assert.Equal(t, []any{"", false, queue["since"]}, []any{resumed["topic"], resumed["paused"], resumed["since"]})
	assert.NotContains(t, s.call("POST", "/queues/QUEUE:resume", nil).is(http.StatusOK), "since", "it was not paused")
	audit := s.call("GET", "/audit?limit=1", nil).is(http.StatusOK)["changes"].([]any)[0].(map[string]any)
	assert.Equal(t, []any{"resume", "", "done"}, []any{audit["action"], audit["topic"], audit["answer"]})
	paused, err := inspect.NewAdmin(s.queue).Paused(t.Context())
	require.NoError(t, err)
	assert.Len(t, paused, 1)
}

// TestDead are listed with their reason, and put back by a reschedule.
func TestDead(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	s.schedule("a", "at", longAgo)
	s.settle(message.Verdict{Verb: message.VerbDeadLetter, Reason: "refused 25 times"})
	dead := s.call("GET", "/queues/QUEUE/messages?state=dead", nil).is(http.StatusOK)["messages"].([]any)[0].(map[string]any)
	assert.Equal(t, []any{"a", "dead", "refused 25 times"}, []any{dead["id"], dead["state"], dead["reason"]})
	assert.NotEmpty(t, dead["end"])
	assert.Len(t, s.call("GET", "/queues/QUEUE/messages?reason_contains=25+times", nil).is(http.StatusOK)["messages"], 1)
	assert.Empty(t, s.call("GET", "/queues/QUEUE/messages?reason_contains=24+times", nil).is(http.StatusOK)["messages"])
	s.call("POST", "/queues/QUEUE/messages", map[string]any{"id": "a", "topic": "t", "in": "1h"}).refused(http.StatusConflict, "duplicate")
	s.call("POST", "/queues/QUEUE/messages/a:reschedule", map[string]any{"in": "1h"}).is(http.StatusOK)
	assert.Equal(t, "scheduled", s.call("GET", "/queues/QUEUE/messages/a", nil).is(http.StatusOK)["state"])
}

// TestEvents: a listener is told of what changes, with rates; there may be so many of
// them, and they end with the server.
func TestEvents(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	listen := func() (*http.Response, error) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.server.URL+"/api/v1/events", nil)
		require.NoError(t, err)
		return s.server.Client().Do(request)
	}
	first, err := listen()
	require.NoError(t, err)
	require.Equal(t, "text/event-stream", first.Header.Get("Content-Type"))
	scheduled, events := 0, bufio.NewScanner(first.Body)
	for events.Scan() { // until one tells of messages, and of how fast they came: one has come since the one before
		data, ok := strings.CutPrefix(events.Text(), "data: ")
		if !ok {
			continue
		}
		var o struct {
			Queues []struct {
				Waiting int
				Rates   *struct{ Scheduled float64 }
			}
		}
		require.NoError(t, json.Unmarshal([]byte(data), &o))
		if q := o.Queues[0]; q.Waiting == scheduled && q.Rates != nil && q.Rates.Scheduled > 0 {
			break
		}
		s.call("POST", "/queues/QUEUE/messages", map[string]any{"topic": "t", "in": "1h"}).is(http.StatusCreated)
		scheduled++
	}
	require.NoError(t, events.Err())

	others := []*http.Response{first}
	for {
		response, err := listen()
		require.NoError(t, err)
		others = append(others, response)
		if response.StatusCode == http.StatusTooManyRequests {
			break
		}
		require.LessOrEqual(t, len(others), 40)
	}
	for _, response := range others {
		require.NoError(t, response.Body.Close())
	}
	require.Eventually(t, func() bool { // Their places are free again.
		response, err := listen()
		require.NoError(t, err)
		return response.Body.Close() == nil && response.StatusCode == http.StatusOK
	}, patience, tick)
}

// TestRedisDown is said in each answer, and in the overview.
func TestRedisDown(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	s.schedule("a")
	require.NoError(t, s.rdb.Close())
	s.call("GET", "/queues/QUEUE/messages/a", nil).refused(http.StatusServiceUnavailable, "unavailable")
	s.call("DELETE", "/queues/QUEUE/messages/a", nil).refused(http.StatusServiceUnavailable, "unavailable")
	s.call("GET", "/queues/QUEUE", nil).refused(http.StatusServiceUnavailable, "unavailable")
	s.call("GET", "/audit", nil).refused(http.StatusServiceUnavailable, "unavailable")
	queue := s.call("GET", "/queues", nil).is(http.StatusOK)["queues"].([]any)[0].(map[string]any)
	assert.NotEmpty(t, queue["error"])
	assert.Contains(t, s.log.String(), "change is in this log only")
}

// TestNothingIsZero: where Redis does not tell, there are no figures beside the error, no route
// seems open, and no pause seems to have ended.
func TestNothingIsZero(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	s.schedule("a")
	known := s.call("GET", "/queues", nil).is(http.StatusOK)
	assert.Contains(t, known, "age_s")
	assert.Equal(t, []any{"local", "operator", true}, []any{
		known["caller"].(map[string]any)["name"], known["caller"].(map[string]any)["role"], known["caller"].(map[string]any)["may_change"],
	})
	assert.NotEmpty(t, known["queues"].([]any)[0].(map[string]any)["made_at"])
	require.NoError(t, s.rdb.Close())
	var queue, all map[string]any
	require.Eventually(t, func() bool {
		all = s.call("GET", "/queues", nil).is(http.StatusOK)
		queue = all["queues"].([]any)[0].(map[string]any)
		return queue["error"] != nil
	}, patience, tick)
	for field, value := range queue {
		switch field {
		case "name", "sink", "owner", "contacts", "source", "error": // The configuration has them.
		case "paused", "losses":
			assert.Nil(t, value, field)
		default:
			assert.Fail(t, "it is not known", "%s: %v", field, value)
		}
	}
	sink := all["sinks"].([]any)[0].(map[string]any)
	assert.Nil(t, sink["routes"])
	assert.Equal(t, []any{s.queue.Name()}, sink["unknown"])
	usage := s.call("GET", "/usage", nil).is(http.StatusOK)
	assert.Empty(t, usage["total"])
	owner := usage["owners"].([]any)[0].(map[string]any)
	assert.Len(t, owner, 2, "its name and its queues: %v", owner)
	used := owner["queues"].([]any)[0].(map[string]any)
	assert.Equal(t, map[string]any{"name": s.queue.Name(), "error": queue["error"]}, used)
	assert.NotEqual(t, http.StatusOK, s.call("GET", "/queues/QUEUE", nil).status)
	assert.NotEqual(t, http.StatusOK, s.call("GET", "/queues/QUEUE/shards", nil).status)
	assert.NotEqual(t, http.StatusOK, s.call("GET", "/instances", nil).status)
}

// TestLosses are told until somebody has acknowledged them, which is written down.
func TestLosses(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	at := time.UnixMilli(1_700_000_000_000)
	require.NoError(t, s.queue.Layouts().RecordLoss(t.Context(), store.Loss{ID: "shards:3", Kind: store.LostShards, Shards: []int{1}, At: at, Instance: "b"}))
	losses := s.call("GET", "/queues/QUEUE", nil).is(http.StatusOK)["losses"]
	assert.Equal(t, []any{map[string]any{
		"id": "shards:3", "kind": "shards", "shards": []any{1.0}, "at": "2023-11-14T22:13:20.000Z", "instance": "b",
	}}, losses)
	s.call("POST", "/queues/QUEUE/losses:acknowledge", `{"losses": []}`).refused(http.StatusBadRequest, "invalid")
	done := s.call("POST", "/queues/QUEUE/losses:acknowledge", `{"losses": ["shards:3", "none"]}`).is(http.StatusOK)
	assert.InDelta(t, 1, done["acknowledged"], 0)
	left, err := inspect.NewAdmin(s.queue).Losses(t.Context())
	require.NoError(t, err)
	assert.Empty(t, left)
	changes := s.call("GET", "/audit?queue=QUEUE", nil).is(http.StatusOK)["changes"].([]any)
	assert.Equal(t, "acknowledge loss", changes[0].(map[string]any)["action"])
}
