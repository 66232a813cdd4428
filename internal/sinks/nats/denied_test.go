//go:build unix

package nats_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/secret"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/nats"
)

// TestDeniedWhileStoring takes the right to publish away while the ack of a message is
// on its way: the refusal is of the one that came after.
func TestDeniedWhileStoring(t *testing.T) {
	t.Parallel()
	const login = `
pid_file: %q
authorization { users: [
	{user: "` + user + `", password: "` + password + `"},
	{user: limited, password: limited, permissions: {publish: ["%s", "$JS.API.>"], subscribe: "_INBOX.>"}}]}`
	topic, pid := testenv.Name(t, "topic"), filepath.Join(t.TempDir(), "pid")
	server := testenv.StartNATS(t, fmt.Sprintf(login, pid, topic))
	nc, _ := broker{url: server.URL(), user: user}.open(t)
	t.Cleanup(nc.Close)
	stored := make(chan *natsgo.Msg, 1)
	_, err := nc.ChanSubscribe(topic, stored) // As a stream does that waits for its replicas.
	require.NoError(t, err)
	require.NoError(t, nc.Flush())

	sink := newSink(t, nats.Config{URL: server.URL(), User: "limited", Password: secret.Value("limited"), PublishTimeout: time.Minute})
	first := make(chan sinks.Outcome, 1)
	go func() { first <- publish(t, sink, newMessage(t, topic))[0] }()
	m := <-stored
	file := filepath.Join(server.Dir(), "nats.conf")
	config, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, bytes.ReplaceAll(config, []byte(topic), []byte("other")), 0o600))
	number, err := os.ReadFile(pid)
	require.NoError(t, err)
	process, err := strconv.Atoi(strings.TrimSpace(string(number)))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(process, syscall.SIGHUP))
	require.Eventually(t, func() bool { return strings.Contains(server.Log(), "Reloaded server configuration") }, time.Minute, 10*time.Millisecond)

	second := make(chan sinks.Outcome, 1)
	go func() { second <- publish(t, sink, newMessage(t, topic))[0] }()
	require.Eventually(t, func() bool { return strings.Contains(server.Log(), "Publish Violation") }, time.Minute, 10*time.Millisecond)
	require.NoError(t, sink.Ping(t.Context()), "the refusal has come, too")
	require.NoError(t, m.Respond([]byte(`{"stream":"replicated","seq":1}`)))
	requireOutcome(t, <-first, sinks.Acknowledged, "")
	requireOutcome(t, <-second, sinks.Unavailable, sinks.ReasonAuth)
	require.Empty(t, stored)
	requireOutcome(t, publish(t, sink, newMessage(t, topic))[0], sinks.Unavailable, sinks.ReasonAuth)
}
