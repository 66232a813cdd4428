package app

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// TestCanary: canaries come as long as a bridge runs, and it tells of them.
func TestCanary(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testenv.Redis(t), 2)
	f.more = ", canary: {topic: " + f.topic + ", every: 1s}"
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, f.config("a", f.redis), slog.New(slog.NewTextHandler(t.Output(), nil)), AdminListener(listener))
	}()
	metric := func(name string) float64 {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+listener.Addr().String()+"/metrics", http.NoBody)
		require.NoError(t, err)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		defer func() { assert.NoError(t, response.Body.Close()) }()
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		found := regexp.MustCompile(`(?m)^delaybridge_canary_` + name + `\{queue="orders"\} (\S+)$`).FindSubmatch(text)
		require.NotNil(t, found)
		value, err := strconv.ParseFloat(string(found[1]), 64)
		require.NoError(t, err)
		return value
	}
	began := metric("last_success_timestamp_seconds")
	assert.InDelta(t, time.Now().Unix(), began, 60, "from the start on, so that an alert need not wait for a first one")
	for range 2 {
		m, err := f.got.NextMsgWithContext(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "delaybridge-canary", m.Header.Get("delay-id"))
		assert.Equal(t, "orders", m.Header.Get("delaybridge-canary"))
	}
	require.Eventually(t, func() bool { return metric("seconds_count") >= 2 }, time.Minute, 10*time.Millisecond)
	assert.Greater(t, metric("last_success_timestamp_seconds"), began)
	cancel()
	require.NoError(t, <-ended)
	http.DefaultClient.CloseIdleConnections()
}
