package main

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/testenv"
)

// TestRun takes a message from the command line to the broker.
func TestRun(t *testing.T) {
	t.Parallel()
	url, topic := testenv.NATS(t), testenv.Name(t, "t")
	f := setupWith(t, 2, url, freeAddr(t))
	nc, err := nats.Connect(url)
	require.NoError(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: topic, Subjects: []string{topic}})
	require.NoError(t, err)
	got, err := nc.SubscribeSync(topic)
	require.NoError(t, err)

	p := start(t, os.Environ(), "run", "--config", f.file)
	due := dueAt(t, f.ok("schedule", "--topic", topic, "--in", "300ms", "--id", "a", "-o", "json", "hello").object(t))
	msg, err := got.NextMsg(commandTimeout)
	require.NoError(t, err)
	assert.False(t, time.Now().Before(due), "early")
	assert.Equal(t, "hello", string(msg.Data))
	assert.Equal(t, "a", msg.Header.Get("delay-id"))

	f.ok("schedule", "--topic", topic, "--in", "1h", "--id", "later", "x")
	p.signal(syscall.SIGTERM)
	assert.Equal(t, exitDone, p.wait(), p.output())
	f.ok("get", "--id", "later")
	for line := range p.lines {
		var entry map[string]any
		assert.NoError(t, json.Unmarshal([]byte(line), &entry), line)
	}
}

// TestRunAdminPortTaken is refused at the start, and says why.
func TestRunAdminPortTaken(t *testing.T) {
	t.Parallel()
	taken, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	defer func() { _ = taken.Close() }()
	f := setupWith(t, 1, "nats://127.0.0.1:1", taken.Addr().String())
	o := bridge(t, "", "run", "--config", f.file)
	assert.Equal(t, exitFailed, o.code)
	assert.Contains(t, o.stderr, taken.Addr().String())
}

// TestRunEvictingRedis is refused: waiting messages would be lost.
func TestRunEvictingRedis(t *testing.T) {
	t.Parallel()
	server := testenv.StartRedis(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	f := setup(t)
	o := bridge(t, "", "run", "--config", elsewhere(t, f, server.URL()))
	assert.Equal(t, exitFailed, o.code)
	assert.Contains(t, o.stderr, "allkeys-lru")
}

// TestRunSecondSignal does not wait for the drain: a sink that is down, with a
// message in its hands, would take the whole time.
func TestRunSecondSignal(t *testing.T) {
	t.Parallel()
	server := testenv.StartNATS(t, "")
	addr := freeAddr(t)
	f := setupWith(t, 1, server.URL(), addr)
	f.ok("schedule", "--topic", "t", "--in", "0s", "x")
	server.Pause()
	p := start(t, os.Environ(), "run", "--config", f.file)
	require.Eventually(t, func() bool { return isReady(addr) }, commandTimeout, 10*time.Millisecond)
	p.signal(syscall.SIGINT)
	p.signal(syscall.SIGTERM)
	assert.Equal(t, exitFailed, p.wait(), p.output())
	server.Resume()
}

func isReady(addr string) bool {
	response, err := http.Get("http://" + addr + "/readyz") //nolint:noctx // local
	if err != nil {
		return false
	}
	defer func() { _ = response.Body.Close() }()
	return response.StatusCode == http.StatusOK
}

// freeAddr is an address that nobody listens on.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}
