package api_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/operate"
)

// TestQueuesChange: a queue is shown as soon as it is there, with its owner, and is not found as soon as it is not.
func TestQueuesChange(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	queues := *s.queues.Load()
	one := queues[s.queue.Name()]
	names := func() (names []string) {
		for _, q := range s.call("GET", "/queues", nil).is(http.StatusOK)["queues"].([]any) {
			names = append(names, text(q.(map[string]any)["name"]))
		}
		return names
	}
	assert.Equal(t, []string{one.Name}, names())
	detail := s.call("GET", "/queues/QUEUE", nil).is(http.StatusOK)
	assert.Equal(t, "ann", detail["owner"])
	assert.Equal(t, []any{"desk"}, detail["contacts"])

	other := *one
	other.Name, other.Owner = "other", ""
	s.queues.Store(&map[string]*operate.Queue{one.Name: one, "other": &other})
	assert.ElementsMatch(t, []string{one.Name, "other"}, names(), "at once, and not when the figures are old")
	assert.NotContains(t, s.call("GET", "/queues/other", nil).is(http.StatusOK), "owner")
	s.queues.Store(&map[string]*operate.Queue{"other": &other})
	assert.Equal(t, []string{"other"}, names())
	s.call("GET", "/queues/QUEUE", nil).refused(http.StatusNotFound, "not_found")
	s.call("POST", "/queues/QUEUE/messages", map[string]any{"topic": "t", "in": "1h"}).refused(http.StatusNotFound, "not_found")
	s.queues.Store(&map[string]*operate.Queue{})
	assert.Empty(t, names())
}

// TestQueuesChangeUnderCalls: a queue that is removed during a call is there for it, or is not found.
func TestQueuesChangeUnderCalls(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	with, without := s.queues.Load(), &map[string]*operate.Queue{}
	changed := make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(changed)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				s.queues.Store([]*map[string]*operate.Queue{with, without}[i%2])
			}
		}
	}()
	var calling sync.WaitGroup
	var mu sync.Mutex
	seen := map[int]int{}
	for _, path := range []string{
		"/queues", "/queues/QUEUE", "/queues/QUEUE/shards", "/queues/QUEUE/recent", "/instances", "/sinks", "/queues/QUEUE/messages", "/queues/QUEUE/jobs", "/queues/QUEUE/forecast",
	} {
		calling.Go(func() {
			for range 30 {
				// A server would recover from a panic, and its client would try again.
				request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1"+strings.ReplaceAll(path, "QUEUE", s.queue.Name()), nil)
				request.RemoteAddr, request.Host = "127.0.0.1:1", "127.0.0.1"
				w := httptest.NewRecorder()
				s.api.ServeHTTP(w, request)
				mu.Lock()
				seen[w.Code]++
				mu.Unlock()
			}
		})
	}
	calling.Wait()
	close(stop)
	<-changed
	for status := range seen {
		require.Contains(t, []int{http.StatusOK, http.StatusNotFound}, status)
	}
	assert.Positive(t, seen[http.StatusOK])
}
