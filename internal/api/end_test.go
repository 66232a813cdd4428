package api_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// TestStoryAfterItsEnd: where the queue keeps a history, a message is shown that has ended,
// to those who may see its topic; and what became of the one before, where it lives again.
func TestStoryAfterItsEnd(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{tokens: operatorToken + " operator\n" + producerToken + " producer topics=other\n"})
	storetest.SetRules(t, s.queue, layout.Rules{History: layout.History{Count: 10, Age: time.Hour}})
	const path = "/queues/QUEUE/messages/a"
	as := func(token, method, path string, body any) answer { return s.call(method, path, body, bearer(token)...) }
	schedule := func() {
		as(operatorToken, "POST", "/queues/QUEUE/messages", map[string]any{"id": "a", "topic": "order.timeout", "body": "", "in": "30m"}).is(http.StatusCreated)
	}
	schedule()
	as(operatorToken, "DELETE", path, nil).is(http.StatusOK)
	got := as(operatorToken, "GET", path, nil).is(http.StatusOK)
	end := got["end"].(map[string]any)
	assert.NotEmpty(t, end["at"])
	assert.Equal(t, map[string]any{
		"id": "a", "key": "", "queue": s.queue.Name(), "topic": "order.timeout", "state": "cancelled", "due_at": got["due_at"], "attempt": 1.0,
		"maybe_published": false, "tags": []any{}, "headers": map[string]any{},
		"end": map[string]any{"state": "cancelled", "at": end["at"], "topic": "order.timeout", "attempt": 1.0},
	}, got)
	as(producerToken, "GET", path, nil).refused(http.StatusNotFound, "not_found")
	as(operatorToken, "DELETE", path, nil).refused(http.StatusNotFound, "not_found")

	schedule()
	got = as(operatorToken, "GET", path, nil).is(http.StatusOK)
	assert.Equal(t, "scheduled", got["state"])
	assert.Equal(t, end, got["end"])
}
