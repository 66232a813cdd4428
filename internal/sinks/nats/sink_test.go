package nats_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/secret"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/nats"
	"github.com/delaybridge/delaybridge/internal/sinks/sinktest"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

func newMessage(t testing.TB, topic string) message.Message {
	t.Helper()
	return message.Message{
		ID: testenv.Name(t, "id"), Topic: topic, Queue: "orders", Body: []byte("body"),
		DueAt: time.UnixMilli(2_000), ScheduledAt: time.UnixMilli(1_000), Attempt: 1, Token: "0123456789abcdef",
	}
}

func publish(t testing.TB, sink sinks.Sink, batch ...message.Message) []sinks.Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	return sinks.Publish(ctx, sink, batch)
}

func requireOutcome(t testing.TB, outcome sinks.Outcome, class sinks.Class, reason sinks.Reason) {
	t.Helper()
	require.Equal(t, class.String()+" "+string(reason), outcome.Class.String()+" "+string(outcome.Reason), "%v", outcome.Err)
}

// An id in another topic or with another token is another message; the same
// again is a duplicate, which JetStream drops and the sink reports.
func TestDuplicates(t *testing.T) {
	t.Parallel()
	b := broker{url: testenv.NATS(t)}
	stream := testenv.Name(t, "stream")
	b.makeStream(t, jetstream.StreamConfig{Name: stream, Subjects: []string{stream + ".>"}})
	sink := newSink(t, nats.Config{URL: b.url})

	m := newMessage(t, stream+".orders")
	moved := m
	moved.Token, moved.Topic = "fedcba9876543210", stream+".bills"
	outcomes := publish(t, sink, m, moved, m)
	at := func(n uint64) sinks.Place { return sinks.Place{IsKnown: true, Stream: stream, Number: n} }
	require.Equal(t, []sinks.Outcome{
		{Class: sinks.Acknowledged, Place: at(1)}, {Class: sinks.Acknowledged, Place: at(2)}, {Class: sinks.Acknowledged, Place: at(1), Duplicate: true},
	}, outcomes)
	require.Len(t, b.Read(t, stream, 2), 2)
}

func TestHeaderThatTheClientRefuses(t *testing.T) {
	t.Parallel()
	b := broker{url: testenv.NATS(t)}
	topic := testenv.Name(t, "topic")
	b.MakeTopic(t, topic, sinktest.TopicOptions{})
	sink := newSink(t, nats.Config{URL: b.url})
	batch := []message.Message{newMessage(t, topic), newMessage(t, topic), newMessage(t, topic)}
	batch[1].Headers = map[string]string{"a(b)": "value"}
	outcomes := publish(t, sink, batch...)
	requireOutcome(t, outcomes[0], sinks.Acknowledged, "")
	requireOutcome(t, outcomes[1], sinks.Permanent, sinks.ReasonInvalid)
	requireOutcome(t, outcomes[2], sinks.Acknowledged, "")
}

// The limit of the payload counts headers, too, and those of a stream have one
// of their own.
func TestTooManyBytesOfHeaders(t *testing.T) {
	t.Parallel()
	b := broker{url: testenv.NATS(t)}
	topic := testenv.Name(t, "topic")
	b.MakeTopic(t, topic, sinktest.TopicOptions{})
	sink := newSink(t, nats.Config{URL: b.url})
	payload, stream := newMessage(t, topic), newMessage(t, topic)
	payload.Body = make([]byte, 1<<20-100)
	stream.Headers = map[string]string{"large": strings.Repeat("x", 70_000)}
	for _, outcome := range publish(t, sink, payload, stream) {
		requireOutcome(t, outcome, sinks.Permanent, sinks.ReasonTooLarge)
	}
}

func TestWithoutJetStream(t *testing.T) {
	t.Parallel()
	server := testenv.StartNATS(t, "jetstream: disabled")
	sink := newSink(t, nats.Config{URL: server.URL()})
	outcomes := publish(t, sink, newMessage(t, "orders"), newMessage(t, "bills"))
	for _, outcome := range outcomes {
		requireOutcome(t, outcome, sinks.Unavailable, sinks.ReasonBroker)
	}
	require.Error(t, sink.Ping(t.Context()))
}

// A server answers a publish without permission with an error that names the
// subject, on the connection, and nothing else.
func TestDeniedSubject(t *testing.T) {
	t.Parallel()
	server := testenv.StartNATS(t, `authorization { users: [
		{user: "`+user+`", password: "`+password+`"},
		{user: limited, password: limited, permissions: {publish: ["open.*", "missing.*"], subscribe: "_INBOX.>"}}]}`)
	b := broker{url: server.URL(), user: user}
	open, secretTopic := testenv.Name(t, "open."), testenv.Name(t, "secret.")
	b.MakeTopic(t, open, sinktest.TopicOptions{})
	b.MakeTopic(t, secretTopic, sinktest.TopicOptions{})

	sink := newSink(t, nats.Config{URL: server.URL(), User: "limited", Password: secret.Value("limited")})
	began := time.Now()
	outcomes := publish(t, sink, newMessage(t, open), newMessage(t, secretTopic), newMessage(t, open), newMessage(t, testenv.Name(t, "missing.")))
	require.Less(t, time.Since(began), 5*time.Second)
	requireOutcome(t, outcomes[0], sinks.Acknowledged, "")
	requireOutcome(t, outcomes[1], sinks.Unavailable, sinks.ReasonAuth)
	require.False(t, outcomes[1].Whole)
	requireOutcome(t, outcomes[2], sinks.Acknowledged, "")
	requireOutcome(t, outcomes[3], sinks.Unavailable, sinks.ReasonTopicMissing) // though we may not ask the API
	require.NoError(t, sink.Ping(t.Context()), "without the API a pong is enough")
	require.Len(t, b.Read(t, open, 2), 2)
	require.Empty(t, b.Read(t, secretTopic, 0))
}

// Acks that never come back: the messages are stored, and Unknown.
func TestLostAcks(t *testing.T) {
	t.Parallel()
	b := broker{url: testenv.NATS(t)}
	topic := testenv.Name(t, "topic")
	b.MakeTopic(t, topic, sinktest.TopicOptions{})
	proxy := testenv.NewProxy(t, strings.TrimPrefix(b.url, "nats://"))
	sink := newSink(t, nats.Config{URL: "nats://" + proxy.Addr(), PublishTimeout: time.Second})
	requireOutcome(t, publish(t, sink, newMessage(t, topic))[0], sinks.Acknowledged, "")

	proxy.SwallowReplies(true)
	m := newMessage(t, topic)
	requireOutcome(t, publish(t, sink, m)[0], sinks.Unknown, sinks.ReasonTimeout)
	b.Read(t, topic, 2)

	proxy.SwallowReplies(false)
	proxy.Cut()
	require.Eventually(t, func() bool {
		outcome := publish(t, sink, m)[0]
		return outcome.Class == sinks.Acknowledged && outcome.Duplicate
	}, time.Minute, 50*time.Millisecond, "JetStream must recognise the copy")
	require.Len(t, b.Read(t, topic, 2), 2)
}

func TestConnectionCutWhilePublishing(t *testing.T) {
	t.Parallel()
	b := broker{url: testenv.NATS(t)}
	topic := testenv.Name(t, "topic")
	b.MakeTopic(t, topic, sinktest.TopicOptions{})
	proxy := testenv.NewProxy(t, strings.TrimPrefix(b.url, "nats://"))
	sink := newSink(t, nats.Config{URL: "nats://" + proxy.Addr()})
	requireOutcome(t, publish(t, sink, newMessage(t, topic))[0], sinks.Acknowledged, "")

	proxy.Blackhole(true)
	result := make(chan []sinks.Outcome)
	go func() { result <- publish(t, sink, newMessage(t, topic)) }()
	time.AfterFunc(100*time.Millisecond, proxy.Cut)
	requireOutcome(t, (<-result)[0], sinks.Unknown, sinks.ReasonConnection)
	proxy.Blackhole(false)
	require.Eventually(t, func() bool {
		return publish(t, sink, newMessage(t, topic))[0].Class == sinks.Acknowledged
	}, time.Minute, 50*time.Millisecond)
}

// The first of several servers is down.
func TestSeveralServers(t *testing.T) {
	t.Parallel()
	b := broker{url: testenv.NATS(t)}
	for range 8 { // any may be tried first
		sink := newSink(t, nats.Config{URL: "nats://127.0.0.1:1," + b.url})
		require.NoError(t, sink.Ping(t.Context()))
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	certs := testenv.NewCerts(t)
	server := testenv.StartNATS(t, `tls { cert_file: "`+certs.ServerCert+`", key_file: "`+certs.ServerKey+`", ca_file: "`+certs.CAFile+`", verify: true }`)
	good := tlsclient.Files{CAFile: certs.CAFile, CertFile: certs.ClientCert, KeyFile: certs.ClientKey}
	sink := newSink(t, nats.Config{URL: server.URL(), TLS: &good})
	require.NoError(t, sink.Ping(t.Context()))

	for name, files := range map[string]*tlsclient.Files{
		"no certificate":      {CAFile: certs.CAFile},
		"unknown authority":   {CertFile: certs.ClientCert, KeyFile: certs.ClientKey},
		"wrong name":          {CAFile: certs.CAFile, CertFile: certs.ClientCert, KeyFile: certs.ClientKey, ServerName: "elsewhere"},
		"file does not exist": {CAFile: filepath.Join(t.TempDir(), "missing.crt")},
	} {
		sink := newSink(t, nats.Config{URL: server.URL(), TLS: files})
		outcome := publish(t, sink, newMessage(t, "orders"))[0]
		t.Log(name, outcome.Err)
		requireOutcome(t, outcome, sinks.Unavailable, sinks.ReasonAuth)
	}
	open := testenv.StartNATS(t, `tls { cert_file: "`+certs.ServerCert+`", key_file: "`+certs.ServerKey+`" }`)
	require.NoError(t, newSink(t, nats.Config{URL: open.URL(), TLS: &tlsclient.Files{CAFile: certs.CAFile}}).Ping(t.Context()))
	plain := testenv.NATS(t)
	sink = newSink(t, nats.Config{URL: plain, TLS: &good})
	require.Error(t, sink.Ping(t.Context()), "TLS that is asked for is never left out")
}

func TestLogins(t *testing.T) {
	t.Parallel()
	keys, err := nkeys.CreateUser()
	require.NoError(t, err)
	public, err := keys.PublicKey()
	require.NoError(t, err)
	seed, err := keys.Seed()
	require.NoError(t, err)
	seedFile := filepath.Join(t.TempDir(), "user.nk")
	require.NoError(t, os.WriteFile(seedFile, seed, 0o600))

	t.Run("nkey", func(t *testing.T) {
		t.Parallel()
		server := testenv.StartNATS(t, `authorization { users: [{nkey: `+public+`}] }`)
		require.NoError(t, newSink(t, nats.Config{URL: server.URL(), NKeyFile: seedFile}).Ping(t.Context()))
		requireOutcome(t, publish(t, newSink(t, nats.Config{URL: server.URL()}), newMessage(t, "x"))[0], sinks.Unavailable, sinks.ReasonAuth)
	})
	t.Run("token in a file that is corrected", func(t *testing.T) {
		t.Parallel()
		server := testenv.StartNATS(t, `authorization { token: "right" }`)
		file := filepath.Join(t.TempDir(), "token")
		sink := newSink(t, nats.Config{URL: server.URL(), Token: secret.File(file)})
		requireOutcome(t, publish(t, sink, newMessage(t, "x"))[0], sinks.Unavailable, sinks.ReasonAuth)
		require.NoError(t, os.WriteFile(file, []byte("wrong\n"), 0o600))
		for range 3 {
			require.Error(t, sink.Ping(t.Context()))
		}
		require.NoError(t, os.WriteFile(file, []byte("right\n"), 0o600))
		require.NoError(t, sink.Ping(t.Context()))
	})
	t.Run("in the url", func(t *testing.T) {
		t.Parallel()
		server := testenv.StartNATS(t, login)
		url := strings.Replace(server.URL(), "nats://", "nats://"+user+":correct%20horse@", 1)
		require.NoError(t, newSink(t, nats.Config{URL: url}).Ping(t.Context()))
	})
}
