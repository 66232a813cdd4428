package app

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/fx"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// TestSinkUpAfterAShortOutage: an outage between two pings, whose only message was cancelled
// meanwhile, leaves nothing to see by that the sink is up again, and it is told all the same.
func TestSinkUpAfterAShortOutage(t *testing.T) {
	t.Parallel()
	broker, err := url.Parse(testenv.NATS(t))
	require.NoError(t, err)
	proxy := testenv.NewProxy(t, broker.Host)
	cfg := parse(t, "prefix: %s\nredis: {url: %q}\nqueues: {orders: {shards: 1, sink: events}}\nsinks: {events: {type: nats, url: \"nats://%s\"}}\nadmin: {listen: \"\"}\ndrain_timeout: 5s\n",
		testenv.Name(t, "p"), testenv.Redis(t), proxy.Addr())
	rdb, err := NewRedis(cfg.Redis, "test")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	client, err := delay.NewClient(rdb, "orders", delay.WithPrefix(cfg.Prefix))
	require.NoError(t, err)
	logs := &records{Handler: slog.NewTextHandler(t.Output(), nil), list: &recordList{}}
	running := make(chan *monitor, 1)
	runBridge(t, cfg, logs.logger(), fx.Invoke(func(m *monitor) { running <- m }))
	m := <-running

	eventually := func(what string, is func() bool) {
		t.Helper()
		require.Eventually(t, is, 2*time.Minute, 5*time.Millisecond, what)
	}
	shows := func(value string) {
		t.Helper()
		eventually("sink_up is "+value, func() bool {
			page := httptest.NewRecorder()
			m.metrics.Handler().ServeHTTP(page, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
			return strings.Contains(page.Body.String(), `delaybridge_sink_up{sink="events"} `+value)
		})
	}
	shows("1")
	for outage := 1; ; outage++ {
		require.LessOrEqual(t, outage, 10, "each was seen by a ping")
		before := m.state("events")
		proxy.Refuse(true)
		proxy.Cut()
		only := delay.Message{ID: "only", Topic: testenv.Name(t, "topic")}
		eventually("it is scheduled", func() bool {
			_, err := client.Schedule(t.Context(), only, delay.After(0))
			return err == nil
		})
		eventually("publishing fails", func() bool { return len(logs.of("sink unavailable")) == outage })
		shows("0")
		eventually("it is cancelled", func() bool {
			err := client.Cancel(t.Context(), delay.Ref{ID: only.ID})
			return err == nil || errors.Is(err, delay.ErrMaybePublished)
		})
		proxy.Refuse(false)
		shows("1")
		if m.state("events").since.Equal(before.since) {
			return // No ping has seen it.
		}
	}
}
