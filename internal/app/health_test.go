package app

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWrongPasswordIsSaid at once, in the log and in /readyz, and nobody's
// password with it.
func TestWrongPasswordIsSaid(t *testing.T) {
	t.Parallel()
	fake := miniredis.RunT(t)
	fake.RequireUserAuth("bridge", "right")
	cfg := parse(t, redisOnly, `{url: "redis://bridge:wrong-secret@`+fake.Addr()+`"}`)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	cfg.Admin.Listen = listener.Addr().String()
	logs := &records{Handler: slog.NewTextHandler(t.Output(), nil), list: &recordList{}}
	stop := runBridge(t, cfg, logs.logger(), AdminListener(listener))
	ready := func() string {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+cfg.Admin.Listen+"/readyz", nil)
		require.NoError(t, err)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return ""
		}
		defer func() { _ = response.Body.Close() }()
		text, _ := io.ReadAll(response.Body)
		return string(text)
	}
	require.Eventually(t, func() bool { return strings.Contains(ready(), "down redis: has not answered yet: WRONGPASS") },
		time.Minute, 20*time.Millisecond, "it says %s", ready())
	require.Eventually(t, func() bool { return len(logs.of("WRONGPASS")) == 1 }, time.Minute, 20*time.Millisecond)
	assert.NotContains(t, ready(), "wrong-secret")
	assert.Empty(t, logs.of("wrong-secret"))

	fake.Close()
	require.Eventually(t, func() bool { return strings.Contains(ready(), "connection refused") },
		time.Minute, 20*time.Millisecond, "another cause")
	require.Eventually(t, func() bool { return len(logs.of("redis unavailable")) == 2 }, time.Minute, 20*time.Millisecond)
	stop()
}
