package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestTopicsHoldInRaces has a producer change a message of its topic, while somebody else
// puts one of another topic in its place: that one stays as it was accepted. Whoever is
// first, the right is that of the message which is there when the change is made.
func TestTopicsHoldInRaces(t *testing.T) {
	t.Parallel()
	const rounds, abreast, theirDue = 600, 4, "2031-01-01T00:00:00.000Z"
	batch := func(conflict string) func(id string) (string, string, any) {
		return func(id string) (string, string, any) {
			m := map[string]any{"id": id, "topic": "pay.due", "in": "2h", "conflict": conflict}
			return "POST", "/queues/QUEUE/messages:batch", map[string]any{"messages": []any{m}}
		}
	}
	for name, try := range map[string]func(id string) (method, path string, body any){
		"replace": func(id string) (string, string, any) {
			return "POST", "/queues/QUEUE/messages", map[string]any{"id": id, "topic": "pay.due", "in": "2h", "conflict": "replace"}
		},
		"replace in a batch": batch("replace"),
		"cancel":             func(id string) (string, string, any) { return "DELETE", "/queues/QUEUE/messages/" + id, nil },
		"reschedule": func(id string) (string, string, any) {
			return "POST", "/queues/QUEUE/messages/" + id + ":reschedule", map[string]any{"in": "3h"}
		},
		"publish now": func(id string) (string, string, any) {
			return "POST", "/queues/QUEUE/messages/" + id + ":publish-now", nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, scenery{tokens: "pay-only-token producer topics=pay.due rate=100000\n" + operatorToken + " operator rate=100000"})
			pay, all := bearer("pay-only-token"), bearer(operatorToken)
			var mu sync.Mutex
			wronged, refused := 0, 0
			round := func(id string) {
				s.call("POST", "/queues/QUEUE/messages", map[string]any{"id": id, "topic": "pay.due", "in": "1h"}, pay...).is(http.StatusCreated)
				var tried, theirs answer
				var both sync.WaitGroup
				both.Go(func() {
					method, path, body := try(id)
					tried = s.call(method, path, body, pay...)
				})
				both.Go(func() {
					theirs = s.call("POST", "/queues/QUEUE/messages", map[string]any{"id": id, "topic": "order.due", "at": theirDue, "conflict": "replace"}, all...)
				})
				both.Wait()
				theirs.is(http.StatusCreated)
				found := s.call("GET", "/queues/QUEUE/messages/"+id, nil, all...)
				mu.Lock()
				defer mu.Unlock()
				if strings.Contains(string(tried.body), `"forbidden"`) {
					refused++
				}
				if found.status != http.StatusOK || found.is(http.StatusOK)["topic"] != "order.due" || found.is(http.StatusOK)["due_at"] != theirDue {
					wronged++
				}
			}
			var running sync.WaitGroup
			for worker := range abreast {
				running.Go(func() {
					for n := range rounds / abreast {
						round(fmt.Sprintf("m-%d-%d", worker, n))
					}
				})
			}
			running.Wait()
			assert.Zero(t, wronged, "of %d rounds, %d of which were refused", rounds, refused)
		})
	}
}

// TestTopicsOfWhatIsThere: of another's message that holds the identity, a limited caller
// learns that it is there, and nothing of it.
func TestTopicsOfWhatIsThere(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{tokens: "pay-only-token producer topics=pay.due,pay.retry\n" + operatorToken + " operator"})
	pay, all := bearer("pay-only-token"), bearer(operatorToken)
	const due = "2031-01-01T00:00:00.000Z"
	put := func(id, topic, conflict string, headers []string) answer {
		return s.call("POST", "/queues/QUEUE/messages", map[string]any{"id": id, "topic": topic, "at": due, "conflict": conflict}, headers...)
	}
	put("theirs", "order.due", "reject", all).is(http.StatusCreated)
	put("mine", "pay.retry", "reject", pay).is(http.StatusCreated)

	taken := put("theirs", "pay.due", "reject", pay)
	taken.refused(http.StatusConflict, "duplicate")
	assert.NotContains(t, string(taken.body), "2031")
	assert.NotContains(t, string(taken.body), "order.due")
	for _, answer := range []answer{
		put("theirs", "pay.due", "keep", pay), put("theirs", "pay.due", "replace", pay),
		s.call("DELETE", "/queues/QUEUE/messages/theirs", nil, pay...),
		s.call("POST", "/queues/QUEUE/messages/theirs:reschedule", map[string]any{"in": "1h"}, pay...),
		s.call("POST", "/queues/QUEUE/messages/theirs:publish-now", nil, pay...),
	} {
		answer.refused(http.StatusForbidden, "forbidden")
		assert.NotContains(t, string(answer.body), "2031")
		assert.NotContains(t, string(answer.body), "order.due")
	}
	assert.Equal(t, "existing", put("mine", "pay.due", "keep", pay).is(http.StatusCreated)["status"])
	assert.Contains(t, string(put("mine", "pay.due", "reject", pay).body), "2031")
	assert.Equal(t, "replaced", put("mine", "pay.due", "replace", pay).is(http.StatusCreated)["status"])
	s.call("DELETE", "/queues/QUEUE/messages/nobodys", nil, pay...).refused(http.StatusNotFound, "not_found")
	s.call("POST", "/queues/QUEUE/messages/nobodys:publish-now", nil, pay...).refused(http.StatusNotFound, "not_found")
	found := s.call("GET", "/queues/QUEUE/messages/theirs", nil, all...).is(http.StatusOK)
	assert.Equal(t, due, found["due_at"])
	assert.Equal(t, "order.due", found["topic"])
}
