package api_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestCancelTagged: a producer cancels all of a tag or a key that it may cancel one by one,
// and is told of no others.
func TestCancelTagged(t *testing.T) {
	t.Parallel()
	for _, query := range []string{"tag=customer-7", "key=k", "tag=customer-7&key=k"} {
		t.Run(query, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, scenery{tokens: "pay-only-token producer topics=pay.due\nviewer-only-token viewer\n" + operatorToken + " operator"})
			pay, viewer, all := bearer("pay-only-token"), bearer("viewer-only-token"), bearer(operatorToken)
			for id, topic := range map[string]string{"a": "pay.due", "b": "pay.due", "c": "order.due"} {
				s.call("POST", "/queues/QUEUE/messages", map[string]any{"id": id, "key": "k", "topic": topic, "in": "1h", "tags": []string{"customer-7"}}, all...).is(http.StatusCreated)
			}
			path := "/queues/QUEUE/messages?" + query
			s.call("DELETE", path, nil, viewer...).refused(http.StatusForbidden, "forbidden")
			want := func(done float64) map[string]any {
				return map[string]any{"done": done, "maybe_published": 0.0, "too_late": 0.0, "more": false}
			}
			assert.Equal(t, want(2), s.call("DELETE", path, nil, pay...).is(http.StatusOK))
			assert.Equal(t, want(0), s.call("DELETE", path, nil, pay...).is(http.StatusOK))
			s.call("GET", "/queues/QUEUE/messages/c?key=k", nil, all...).is(http.StatusOK)
			assert.Equal(t, want(1), s.call("DELETE", path, nil, all...).is(http.StatusOK))
			assert.Equal(t, "filter", s.call("DELETE", "/queues/QUEUE/messages", nil, all...).refused(http.StatusBadRequest, "invalid"))
			assert.Equal(t, "tag", s.call("DELETE", "/queues/QUEUE/messages?tag=a%20b", nil, all...).refused(http.StatusBadRequest, "invalid"))
		})
	}
}
