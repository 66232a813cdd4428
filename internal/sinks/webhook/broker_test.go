package webhook_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/sinktest"
	"github.com/delaybridge/delaybridge/internal/sinks/webhook"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

// asReceiver has this program serve, in place of the tests.
const asReceiver = "DELAYBRIDGE_TEST_WEBHOOK_RECEIVER"

func TestMain(m *testing.M) {
	if os.Getenv(asReceiver) != "" {
		fmt.Fprintln(os.Stderr, serve(os.Args[1], os.Args[2], os.Args[3], os.Args[4]))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// The shared receiver speaks HTTP/2, the private one HTTP/1.1.
func TestConformance(t *testing.T) {
	certs := testenv.NewCerts(t)
	shared := newBroker(t, certs)
	shared.serve(t)
	sinktest.Run(t, sinktest.Harness{
		Shared: shared,
		Private: func(t *testing.T) sinktest.PrivateBroker {
			b := &privateBroker{broker: newBroker(t, certs)}
			b.address = "127.0.0.1:" + testenv.Port(t)
			b.Start(t)
			t.Cleanup(func() { b.Kill(t) })
			return b
		},
	})
}

// broker is a receiver, with an endpoint for each topic.
type broker struct {
	dir, address string
	certs        testenv.Certs
	secrets      string // file
}

func newBroker(t testing.TB, certs testenv.Certs) broker {
	t.Helper()
	b := broker{dir: t.TempDir(), certs: certs, secrets: filepath.Join(t.TempDir(), "secrets")}
	require.NoError(t, os.WriteFile(b.secrets, []byte(secret+"\n"), 0o600))
	return b
}

// serve serves from this process, in HTTP/2.
func (b *broker) serve(t testing.TB) {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(b.certs.ServerCert, b.certs.ServerKey)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(&receiver{dir: b.dir})
	server.EnableHTTP2, server.TLS = true, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	at, err := url.Parse(server.URL)
	require.NoError(t, err)
	b.address = at.Host
}

func (broker) Features() sinktest.Features {
	return sinktest.Features{
		Gaps: map[string]string{
			"wrong_password": "no connection has a login: only the answer to a message tells whether its signature is right, see `webhook.TestAnswers`",
		},
		Keyed:        true,
		FoldsNames:   true,
		Missing:      sinks.ReasonTopicMissing,
		InvalidTopic: "Orders!",
		TooLarge:     largest + 1,
		ExtraHeaders: []string{"webhook-id", "webhook-timestamp", "webhook-signature", "user-agent", "content-length"},
		Connections:  16,
	}
}

func (b broker) MakeTopic(t testing.TB, topic string, options sinktest.TopicOptions) {
	t.Helper()
	b.make(t, topic, limits{TopicOptions: options})
}

func (b broker) make(t testing.TB, topic string, is limits) {
	t.Helper()
	text, err := json.Marshal(is)
	require.NoError(t, err)
	name := filepath.Join(b.dir, topic)
	require.NoError(t, os.WriteFile(name+".limits", text, 0o600))
	require.NoError(t, os.WriteFile(name, nil, 0o600))
}

// DeleteTopic implements [sinktest.TopicDeleter].
func (b broker) DeleteTopic(t testing.TB, topic string) {
	t.Helper()
	require.NoError(t, os.Remove(filepath.Join(b.dir, topic)))
}

// HangTopic implements [sinktest.TopicHanger].
func (b broker) HangTopic(t testing.TB, topic string) {
	t.Helper()
	b.make(t, topic, limits{Hangs: true})
}

// Read implements [sinktest.Broker].
func (b broker) Read(t testing.TB, topic string, atLeast int) []sinktest.StoredMessage {
	t.Helper()
	require.Eventually(t, func() bool { return len(read(t, b.dir, topic)) >= atLeast }, time.Minute, 20*time.Millisecond)
	return read(t, b.dir, topic)
}

// NewSink implements [sinktest.Broker].
func (b broker) NewSink(t testing.TB, options sinktest.Options) sinks.Sink {
	t.Helper()
	address := b.address
	if options.BytesPerSecond > 0 {
		proxy := testenv.NewProxy(t, address)
		proxy.Rate(options.BytesPerSecond)
		address = proxy.Addr()
	}
	s := &anySink{broker: b, address: address, timeout: options.PublishTimeout}
	var err error
	s.Sink, err = webhook.New(s.config("any"), nil)
	require.NoError(t, err)
	return s
}

// anySink has an endpoint for every topic.
type anySink struct {
	*webhook.Sink

	broker  broker
	address string
	timeout time.Duration
}

func (s *anySink) config(topic string) webhook.Config {
	return webhook.Config{
		Endpoints:      map[string]webhook.Endpoint{topic: {URL: "https://" + s.address + "/hooks/" + topic, Secrets: s.broker.secrets}},
		TLS:            &tlsclient.Files{CAFile: s.broker.certs.CAFile},
		PublishTimeout: s.timeout,
	}
}

// Publish implements [sinks.Sink].
func (s *anySink) Publish(ctx context.Context, batch []message.Message, outcomes *sinks.Outcomes) {
	for i := range batch {
		if topic := batch[i].Topic; message.CheckTopic(message.Webhook, topic) == nil {
			if err := s.Ensure(topic, s.config(topic)); err != nil {
				outcomes.Rest(sinks.Failed(sinks.Permanent, sinks.ReasonInvalid, err))
				return
			}
		}
	}
	s.Sink.Publish(ctx, batch, outcomes)
}

// privateBroker is a receiver in a process of its own.
type privateBroker struct {
	broker
	sinktest.Process
}

func (b *privateBroker) Start(t testing.TB) {
	t.Helper()
	b.Run(t, asReceiver, b.dir, b.address, b.certs.ServerCert, b.certs.ServerKey)
	b.Await(t, b)
}
