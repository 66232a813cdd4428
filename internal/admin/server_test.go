package admin

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/console"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// config is that of a healthy bridge on free ports.
func config() Config {
	return Config{
		Listen: "127.0.0.1:0", Probes: "127.0.0.1:0",
		Live:  func() error { return nil },
		Ready: func() Readiness { return Readiness{Ready: true, Checks: []Check{{Name: "redis", OK: true}}} },
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "delaybridge_build_info 1\n")
		}),
		API:      noAPI{http.NotFoundHandler()},
		Profiles: http.NotFoundHandler(),
		Console:  console.Handler(),
		Logger:   slog.New(slog.DiscardHandler),
	}
}

type noAPI struct{ http.Handler }

func (noAPI) Close() {}

func start(t *testing.T, config Config) *Server {
	t.Helper()
	s := New(config)
	require.NoError(t, s.Start(t.Context()))
	t.Cleanup(func() { assert.NoError(t, s.Stop(context.WithoutCancel(t.Context()))) })
	return s
}

// get returns the status and the body of a request of its own connection.
func get(t *testing.T, method, address, path, accept string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, nil)
	require.NoError(t, err)
	request.Header.Set("Accept", accept)
	transport := &http.Transport{DisableKeepAlives: true}
	response, err := transport.RoundTrip(request)
	require.NoError(t, err)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response.StatusCode, string(body)
}

func TestBothListeners(t *testing.T) {
	t.Parallel()
	s := start(t, config())
	for _, address := range []string{s.Addr(), s.ProbesAddr()} {
		for path, want := range map[string]string{"/livez": "ok\n", "/readyz": "ok redis\n", "/metrics": "delaybridge_build_info 1\n"} {
			status, body := get(t, http.MethodGet, address, path, "")
			assert.Equal(t, http.StatusOK, status, path)
			assert.Equal(t, want, body, path)
			status, body = get(t, http.MethodHead, address, path, "")
			assert.Equal(t, http.StatusOK, status, path)
			assert.Empty(t, body)
			status, _ = get(t, http.MethodPost, address, path, "")
			assert.Equal(t, http.StatusMethodNotAllowed, status, path)
		}
	}
	status, body := get(t, http.MethodGet, s.Addr(), "/", "")
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, body, "<title>delaybridge</title>")
	status, _ = get(t, http.MethodGet, s.ProbesAddr(), "/", "")
	assert.Equal(t, http.StatusNotFound, status)
}

func TestUnhealthy(t *testing.T) {
	t.Parallel()
	sick := config()
	sick.Live = func() error { return errors.New("shard orders/3: no look\nfor 30s") }
	sick.Ready = func() Readiness {
		return Readiness{Checks: []Check{
			{Name: "redis", Detail: "no answer for 12s"},
			{Name: "sink events", Detail: "dial tcp:\nconnection refused"},
			{Name: "sink log", OK: true},
		}}
	}
	s := start(t, sick)
	status, body := get(t, http.MethodGet, s.Addr(), "/livez", "")
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.Equal(t, "down loop: shard orders/3: no look for 30s\n", body)
	status, body = get(t, http.MethodGet, s.Addr(), "/readyz", "*/*")
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.Equal(t, "down redis: no answer for 12s\ndown sink events: dial tcp: connection refused\nok sink log\n", body)
	status, body = get(t, http.MethodGet, s.Addr(), "/readyz", "application/json")
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.JSONEq(t, `{"ready": false, "checks": [
		{"name": "redis", "ok": false, "detail": "no answer for 12s"},
		{"name": "sink events", "ok": false, "detail": "dial tcp:\nconnection refused"},
		{"name": "sink log", "ok": true}]}`, body)
}

func TestSinkDownIsReady(t *testing.T) {
	t.Parallel()
	degraded := config()
	degraded.Ready = func() Readiness { return Readiness{Ready: true, Checks: []Check{{Name: "sink events"}}} }
	s := start(t, degraded)
	status, body := get(t, http.MethodGet, s.Addr(), "/readyz", "")
	assert.Equal(t, http.StatusOK, status)
	assert.Equal(t, "down sink events\n", body)
}

func TestOccupiedAddress(t *testing.T) {
	t.Parallel()
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { assert.NoError(t, taken.Close()) }()
	address := taken.Addr().String()

	first := config()
	first.Listen = address
	s := New(first)
	require.ErrorContains(t, s.Start(t.Context()), "listen on "+address+" (admin.listen): ")
	require.NoError(t, s.Stop(t.Context()))

	second := config()
	second.Listen, second.Probes = "127.0.0.1:"+testenv.Port(t), address
	s = New(second)
	require.ErrorContains(t, s.Start(t.Context()), "listen on "+address+" (admin.probes): ")
	assert.Empty(t, s.Addr())
	require.NoError(t, s.Stop(t.Context()))
	require.NoError(t, testenv.Listen(t, second.Listen).Close(), "what was bound before is given up")
}

func TestBound(t *testing.T) {
	t.Parallel()
	bound, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	given := config()
	given.Listen, given.Bound = bound.Addr().String(), bound
	s := start(t, given)
	status, _ := get(t, http.MethodGet, bound.Addr().String(), "/livez", "")
	assert.Equal(t, http.StatusOK, status)
	require.NoError(t, s.Stop(t.Context()))
	_, err = bound.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
}

func TestNoListeners(t *testing.T) {
	t.Parallel()
	none := config()
	none.Listen, none.Probes = "", ""
	s := start(t, none)
	assert.Empty(t, s.Addr()+s.ProbesAddr())
	assert.NoError(t, s.Stop(t.Context()), "start stops it again")
}

func TestStopWaits(t *testing.T) {
	t.Parallel()
	entered, stopping, stopped := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	slow := config()
	slow.Live = func() error {
		close(entered)
		<-stopping
		return nil
	}
	s := New(slow)
	s.listeners[0].server.RegisterOnShutdown(func() { close(stopping) })
	require.NoError(t, s.Start(t.Context()))
	address := s.Addr()
	go func() {
		<-entered
		stopped <- s.Stop(context.WithoutCancel(t.Context()))
	}()
	status, _ := get(t, http.MethodGet, address, "/livez", "")
	assert.Equal(t, http.StatusOK, status)
	require.NoError(t, <-stopped)
	_, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	assert.Error(t, err, "the address is free")
}

func TestStopIsBounded(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}), make(chan struct{})
	stuck := config()
	stuck.Live = func() error {
		close(entered)
		<-release
		return nil
	}
	s := New(stuck)
	require.NoError(t, s.Start(t.Context()))
	connection, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Addr())
	require.NoError(t, err)
	defer func() { _ = connection.Close() }()
	_, err = io.WriteString(connection, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	<-entered
	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.Stop(over), context.Canceled)
	close(release)
}
