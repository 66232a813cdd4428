package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
)

// TestRequestID: every answer names its request, and so do the lines of the log.
func TestRequestID(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	for _, path := range []string{"/queues", "/nothing", "/openapi.json", "/queues/QUEUE/messages/none", "/queues/a//b"} {
		assert.Equal(t, "mine-1", s.call("GET", path, nil, "X-Request-Id", "mine-1").header.Get("X-Request-Id"), path)
		first, second := s.call("GET", path, nil).header.Get("X-Request-Id"), s.call("GET", path, nil).header.Get("X-Request-Id")
		assert.NotEmpty(t, first, path)
		assert.NotEqual(t, first, second, path)
	}
	for _, strange := range []string{"a b", "\"", strings.Repeat("x", 129)} {
		assert.NotContains(t, s.call("GET", "/queues", nil, "X-Request-Id", strange).header.Get("X-Request-Id"), strange)
	}
	s.call("POST", "/queues/QUEUE:pause", nil, "X-Request-Id", "mine-2").is(http.StatusOK)
	assert.Contains(t, s.log.String(), "request=mine-2")
	require.NoError(t, s.rdb.Close())
	s.call("POST", "/queues/QUEUE:pause", nil, "X-Request-Id", "mine-3").refused(http.StatusServiceUnavailable, "unavailable")
	assert.Contains(t, s.log.String(), "change is in this log only")
	for line := range strings.Lines(s.log.String()) {
		assert.Contains(t, line, "request=mine-")
	}
}

// TestLocation: what was made is where the answer says.
func TestLocation(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	follow := func(a answer) map[string]any {
		t.Helper()
		where, ok := strings.CutPrefix(a.header.Get("Location"), "/api/v1")
		require.True(t, ok, "%q", a.header.Get("Location"))
		return s.call("GET", where, nil).is(http.StatusOK)
	}
	for _, id := range []string{"a", "order-42/timeout", "..", "a//b", "ü?#%"} {
		for _, key := range []string{"", "k&1/ü"} {
			a := s.call("POST", "/queues/QUEUE/messages", map[string]any{"id": id, "key": key, "topic": "t", "in": "1h"})
			a.is(http.StatusCreated)
			found := follow(a)
			assert.Equal(t, []any{id, key}, []any{found["id"], found["key"]})
		}
	}
	started := s.call("POST", "/queues/QUEUE/messages:cancel", `{"filter": {"tag": "none"}}`)
	job := started.is(http.StatusAccepted)["job"]
	assert.Equal(t, job, follow(started)["job"])
}

// TestNegativeDelay is a mistake; a time that has passed is not.
func TestNegativeDelay(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	s.schedule("a")
	for path, body := range map[string]string{
		"/queues/QUEUE/messages":              `{"topic": "t", "in": "-5m"}`,
		"/queues/QUEUE/messages/a:reschedule": `{"in": "-5m"}`,
		"/queues/QUEUE/messages:reschedule":   `{"filter": {"topic": "t"}, "in": "-5m"}`,
	} {
		a := s.call("POST", path, body)
		assert.Equal(t, "in", a.refused(http.StatusBadRequest, "invalid"), path)
		assert.Contains(t, string(a.body), `in \"-5m\": must be 0s or more`)
	}
	s.schedule("past", "at", longAgo)
	s.call("POST", "/queues/QUEUE/messages", `{"topic": "t", "in": "0s"}`).is(http.StatusCreated)
}

// TestNotDurableIsDone: what replicas have not confirmed is done, so no caller is told to
// repeat it.
func TestNotDurableIsDone(t *testing.T) {
	t.Parallel()
	replicas := delay.Replicas(7)
	s := newScene(t, scenery{durable: &replicas})
	put := s.call("POST", "/queues/QUEUE/messages", `{"id": "a", "topic": "t", "in": "1h"}`).is(http.StatusCreated)
	assert.Equal(t, []any{"created", true}, []any{put["status"], put["not_durable"]})
	batch := s.call("POST", "/queues/QUEUE/messages:batch", `{"messages": [{"id": "b", "topic": "t", "in": "1h"}]}`).is(http.StatusOK)
	item := batch["results"].([]any)[0].(map[string]any)
	assert.Equal(t, []any{"created", true, nil}, []any{item["status"], item["not_durable"], item["error"]})
	moved := s.call("POST", "/queues/QUEUE/messages/a:reschedule", `{"in": "2h"}`).is(http.StatusOK)
	assert.Equal(t, []any{"rescheduled", true}, []any{moved["status"], moved["not_durable"]})
	gone := s.call("DELETE", "/queues/QUEUE/messages/a", nil).is(http.StatusOK)
	assert.Equal(t, []any{"cancelled", true}, []any{gone["status"], gone["not_durable"]})
}

// TestRetryAfter is in an answer that says to come again, whoever has written it.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	require.NoError(t, s.rdb.Close())
	a := s.call("GET", "/queues/QUEUE/messages", nil)
	a.refused(http.StatusServiceUnavailable, "unavailable")
	assert.Equal(t, "1", a.header.Get("Retry-After"))
}
