package app

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// hooks is a server that takes webhooks, and answers 500 while it fails.
type hooks struct {
	mu    sync.Mutex
	fails bool
	asked map[string]int    // by the message's id
	uids  map[string]string // by the message's id
}

func (h *hooks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	id, uid := r.Header.Get("delay-id"), r.Header.Get("webhook-id")
	if known := h.uids[id]; known != "" && known != uid {
		uid = "another in each attempt"
	}
	h.asked[id]++
	h.uids[id] = uid
	if h.fails && id != "good" {
		w.WriteHeader(http.StatusInternalServerError)
	}
}

func (h *hooks) count(id string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.asked[id]
}

// TestAFailedWebhookIsToldToProducers: who answers 500 may have acted, so a cancel must not say that
// nothing was published (I11). It is tried again by itself, and others of its endpoint are not held up.
func TestAFailedWebhookIsToldToProducers(t *testing.T) {
	t.Parallel()
	h := &hooks{fails: true, asked: map[string]int{}, uids: map[string]string{}}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	secrets := filepath.Join(t.TempDir(), "secrets")
	require.NoError(t, os.WriteFile(secrets, []byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n"), 0o600))
	redisURL, prefix := testenv.Redis(t), testenv.Name(t, "p")
	bridgeFor(t, parse(t, `prefix: %s
redis: {url: %q}
queues: {orders: {shards: 1, sink: hooks, retry: {initial: 100ms, max: 100ms}}}
sinks: {hooks: {type: webhook, endpoints: {billing: {url: %q, secrets: %q, allow_http: true}}}}
admin: {listen: ""}
drain_timeout: 5s
`, prefix, redisURL, server.URL, secrets))
	rdb, err := parse(t, redisOnly, fmt.Sprintf("{url: %q}", redisURL)).Redis.Open("test")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	client, err := delay.NewClient(rdb, "orders", delay.WithPrefix(prefix))
	require.NoError(t, err)

	schedule := func(id string) {
		t.Helper()
		require.Eventually(t, func() bool {
			_, err := client.Schedule(t.Context(), delay.Message{ID: id, Topic: "billing"}, delay.After(0))
			return err == nil
		}, time.Minute, 10*time.Millisecond, "the bridge makes the layout")
	}
	schedule("failed")
	schedule("kept")
	require.Eventually(t, func() bool { return h.count("failed") >= 3 && h.count("kept") >= 3 }, time.Minute, 10*time.Millisecond)
	schedule("good")
	require.Eventually(t, func() bool { return h.count("good") == 1 }, time.Minute, 10*time.Millisecond, "its route is open")
	require.Eventually(t, func() bool { // It may be in flight.
		return errors.Is(client.Cancel(t.Context(), delay.Ref{ID: "failed"}), delay.ErrMaybePublished)
	}, time.Minute, 10*time.Millisecond)

	_, err = client.Schedule(t.Context(), delay.Message{ID: "wrong", Topic: "https://example.com/"}, delay.After(0))
	require.ErrorContains(t, err, "the name of an endpoint")
	_, err = client.Schedule(t.Context(), delay.Message{ID: "wrong", Topic: "billing", Headers: map[string]string{"Webhook-Signature": "v1,"}}, delay.After(0))
	require.ErrorContains(t, err, "webhook-*")

	h.mu.Lock()
	h.fails = false
	h.mu.Unlock()
	require.Eventually(t, func() bool {
		_, err := client.Get(t.Context(), delay.Ref{ID: "kept"})
		return err != nil
	}, time.Minute, 10*time.Millisecond, "it is published")
	h.mu.Lock()
	defer h.mu.Unlock()
	require.NotEqual(t, "another in each attempt", h.uids["kept"])
}
