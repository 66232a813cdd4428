package nats_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/engine/secret"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/nats"
	"github.com/delaybridge/delaybridge/internal/sinks/sinktest"
	"github.com/delaybridge/delaybridge/test/natstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	user     = natstest.User
	password = natstest.Password
	login    = `authorization { user: "` + user + `", password: "` + password + `" }`
)

func TestConformance(t *testing.T) {
	sinktest.Run(t, sinktest.Harness{
		Shared: broker{url: testenv.NATS(t)},
		Private: func(t *testing.T) sinktest.PrivateBroker {
			server := testenv.StartNATS(t, login)
			return privateBroker{broker{url: server.URL(), user: user}, server}
		},
	})
}

// broker is a NATS server, or a cluster, with the user's login where that is not empty.
type broker struct{ url, user string }

type privateBroker struct {
	broker
	server *testenv.Server
}

func (b privateBroker) Kill(testing.TB)   { b.server.Kill() }
func (b privateBroker) Pause(testing.TB)  { b.server.Pause() }
func (b privateBroker) Resume(testing.TB) { b.server.Resume() }
func (b privateBroker) Start(t testing.TB) {
	b.server.Start()
	nc, js := b.open(t)
	defer nc.Close()
	require.Eventually(t, func() bool {
		_, err := js.AccountInfo(t.Context())
		return err == nil
	}, 2*time.Minute, 20*time.Millisecond)
}

func (broker) Features() sinktest.Features {
	return sinktest.Features{
		Missing:      sinks.ReasonTopicMissing,
		InvalidTopic: "orders..paid",
		TooLarge:     2 << 20,
		ExtraHeaders: []string{natsgo.MsgIdHdr},
		Recovery:     5 * time.Second,
	}
}

func (b broker) NewSink(t testing.TB, options sinktest.Options) sinks.Sink {
	t.Helper()
	config := nats.Config{URL: b.url, User: b.user, PublishTimeout: options.PublishTimeout}
	if options.BytesPerSecond > 0 {
		proxy := testenv.NewProxy(t, strings.TrimPrefix(b.url, "nats://"))
		proxy.Rate(options.BytesPerSecond)
		config.URL = "nats://" + proxy.Addr()
	}
	switch {
	case options.WrongPassword:
		config.Password = secret.Value("wrong")
	case b.user != "":
		config.Password = secret.Value(password)
	}
	return newSink(t, config)
}

func newSink(t testing.TB, config nats.Config) *nats.Sink {
	t.Helper()
	sink, err := nats.New(config, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := sink.Close(ctx); err != nil {
			t.Errorf("close sink: %v", err)
		}
	})
	return sink
}

// open makes a plain connection for the test itself.
func (b broker) open(t testing.TB) (*natsgo.Conn, jetstream.JetStream) {
	t.Helper()
	nc, err := natsgo.Connect(b.url, natsgo.UserInfo(b.user, password))
	require.NoError(t, err)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	return nc, js
}

func (b broker) MakeTopic(t testing.TB, topic string, options sinktest.TopicOptions) {
	t.Helper()
	b.makeStream(t, jetstream.StreamConfig{
		Name: streamOf(topic), Subjects: []string{topic}, Discard: jetstream.DiscardNew,
		MaxMsgs: int64(options.MaxMessages), MaxMsgSize: int32(options.MaxMessageBytes), //nolint:gosec // small
	})
}

// DeleteTopic implements [sinktest.TopicDeleter].
func (b broker) DeleteTopic(t testing.TB, topic string) {
	t.Helper()
	nc, js := b.open(t)
	defer nc.Close()
	require.NoError(t, js.DeleteStream(t.Context(), streamOf(topic)))
}

// HangTopic implements [sinktest.TopicHanger]: somebody hears the subject, and
// no stream does.
func (b broker) HangTopic(t testing.TB, topic string) {
	t.Helper()
	nc, _ := b.open(t)
	t.Cleanup(nc.Close)
	_, err := nc.Subscribe(topic, func(*natsgo.Msg) {})
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
}

func streamOf(topic string) string { return strings.ReplaceAll(topic, ".", "_") }

func (b broker) makeStream(t testing.TB, config jetstream.StreamConfig) {
	t.Helper()
	nc, js := b.open(t)
	defer nc.Close()
	_, err := js.CreateStream(t.Context(), config)
	require.NoError(t, err)
}

// Read asks the stream itself, by sequence: no consumer hides anything.
func (b broker) Read(t testing.TB, topic string, atLeast int) []sinktest.StoredMessage {
	t.Helper()
	nc, js := b.open(t)
	defer nc.Close()
	var stream jetstream.Stream
	var err error
	require.Eventually(t, func() bool {
		stream, err = js.Stream(t.Context(), streamOf(topic))
		return err == nil
	}, 2*time.Minute, 20*time.Millisecond, "stream of %s", topic)
	var info *jetstream.StreamInfo
	require.Eventually(t, func() bool {
		info, err = stream.Info(t.Context())
		return err == nil && int(info.State.Msgs) >= atLeast //nolint:gosec // small
	}, 2*time.Minute, 20*time.Millisecond, "%d messages in %s", atLeast, topic)
	var stored []sinktest.StoredMessage
	if info.State.Msgs == 0 {
		return nil
	}
	var consumer jetstream.Consumer
	require.Eventually(t, func() bool { // A leader that has just changed may not answer in time.
		consumer, err = stream.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{})
		return err == nil
	}, 2*time.Minute, 20*time.Millisecond)
	messages, err := consumer.Messages()
	require.NoError(t, err)
	defer messages.Stop()
	for range info.State.Msgs {
		m, err := messages.Next(jetstream.NextMaxWait(2 * time.Minute))
		require.NoError(t, err)
		headers := map[string]string{}
		for name, values := range m.Headers() {
			if len(values) != 1 {
				t.Fatalf("%d values of %s", len(values), name)
			}
			headers[name] = values[0]
		}
		stored = append(stored, sinktest.StoredMessage{Headers: headers, Body: m.Data()})
	}
	return stored
}
