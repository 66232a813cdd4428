package kafka

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/secret"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	sinktest.Run(t, sinktest.Harness{
		Shared:  &testBroker{config: Config{Brokers: testenv.Kafka(t)}, mute: &muter{}},
		Private: func(t *testing.T) sinktest.PrivateBroker { return newPrivateBroker(t, "") },
	})
}

const (
	testUser     = "bridge"
	testPassword = "correct horse"
	partitions   = 6
	patience     = 2 * time.Minute
)

func logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// testBroker is a Kafka of one node. It is administered and read through a
// connection of the package's own, on which kafka-go's client does the rest.
type testBroker struct {
	config Config
	mute   *muter // what answers to no messages; nil if there is none
}

func (b *testBroker) Features() sinktest.Features {
	return sinktest.Features{
		Gaps: map[string]string{
			"full_topic": "a Kafka topic is limited by deleting old messages, never by refusing new ones",
		},
		Keyed:        true,
		Missing:      sinks.ReasonTopicMissing,
		InvalidTopic: "no topic",
		TooLarge:     1_200_000,
		BatchLimit:   1_048_588,
	}
}

func (b *testBroker) NewSink(t testing.TB, options sinktest.Options) sinks.Sink {
	t.Helper()
	config := b.config
	config.PublishTimeout = options.PublishTimeout
	if options.WrongPassword {
		login := *config.SASL
		login.Password = secret.Value("wrong")
		config.SASL = &login
	}
	sink, err := New(config, logger())
	require.NoError(t, err)
	switch {
	case options.BytesPerSecond > 0:
		sink.brokers.opener.dial = slowly(t, b.config.Brokers[0], options.BytesPerSecond)
	case b.mute != nil:
		sink.brokers.opener.dial = b.mute.dial
	}
	return sink
}

func (b *testBroker) MakeTopic(t testing.TB, topic string, options sinktest.TopicOptions) {
	t.Helper()
	var entries []kafka.ConfigEntry
	if options.MaxMessageBytes != 0 {
		entries = append(entries, kafka.ConfigEntry{ConfigName: "max.message.bytes", ConfigValue: strconv.Itoa(options.MaxMessageBytes)})
	}
	b.makeTopic(t, topic, partitions, entries...)
}

func (b *testBroker) makeTopic(t testing.TB, topic string, count int, entries ...kafka.ConfigEntry) {
	t.Helper()
	b.administer(t, func(ctx context.Context, client *kafka.Client) {
		request := &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
			Topic: topic, NumPartitions: count, ReplicationFactor: 1, ConfigEntries: entries,
		}}}
		var refused error
		require.Eventually(t, func() bool { // On a busy machine the controller takes the broker for dead now and then.
			response, err := client.CreateTopics(ctx, request)
			if err == nil {
				err = response.Errors[topic]
			}
			refused = err
			return !errors.Is(err, kafka.InvalidReplicationFactor)
		}, patience, 50*time.Millisecond)
		require.NoError(t, refused)
		require.Eventually(t, func() bool {
			answer, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
			if err != nil || answer.Topics[0].Error != nil || len(answer.Topics[0].Partitions) != count {
				return false
			}
			for partition := range count {
				// Metadata names a leader before the leader knows.
				response, err := client.Fetch(ctx, &kafka.FetchRequest{Topic: topic, Partition: partition, MaxBytes: 1, MaxWait: time.Millisecond})
				if err != nil || response.Error != nil {
					return false
				}
			}
			return true
		}, patience, 10*time.Millisecond)
	})
}

// DeleteTopic implements [sinktest.TopicDeleter].
func (b *testBroker) DeleteTopic(t testing.TB, topic string) {
	t.Helper()
	b.administer(t, func(ctx context.Context, client *kafka.Client) {
		response, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
		require.NoError(t, err)
		require.NoError(t, response.Errors[topic])
		require.Eventually(t, func() bool {
			answer, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
			return err == nil && errors.Is(answer.Topics[0].Error, kafka.UnknownTopicOrPartition)
		}, patience, 10*time.Millisecond)
	})
}

// HangTopic implements [sinktest.TopicHanger].
func (b *testBroker) HangTopic(t testing.TB, topic string) {
	t.Helper()
	b.MakeTopic(t, topic, sinktest.TopicOptions{})
	b.mute.add(topic)
}

// administer lends a client that speaks to the broker over one connection.
func (b *testBroker) administer(t testing.TB, use func(context.Context, *kafka.Client)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	config := b.config
	config.PublishTimeout = patience
	opener := newOpener(config, logger())
	var conn *conn
	require.EventuallyWithT(t, func(c *assert.CollectT) { // A broker that has just started on a busy machine takes long for its first handshakes.
		var err error
		conn, err = opener.open(ctx, b.config.Brokers[0])
		require.NoError(c, err)
	}, patience, 50*time.Millisecond)
	defer conn.close()
	use(ctx, conn.client)
}

// privateBroker demands a login.
type privateBroker struct {
	testBroker
	server *testenv.Server
}

// loginProperties make the one listener of the server demand a login.
const loginProperties = `
listener.security.protocol.map=PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
sasl.mechanism.inter.broker.protocol=PLAIN
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=400
listener.name.plaintext.plain.sasl.jaas.config=` + jaas + `
listener.name.plaintext.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.plaintext.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
`

const jaas = `org.apache.kafka.common.security.plain.PlainLoginModule required username="` + testUser + `" password="` + testPassword +
	`" user_` + testUser + `="` + testPassword + `";`

// neverKilled are properties for a broker that is not killed: its controller does not take it for dead where the machine
// stands still. One that is killed would wait as long for its own session.
const neverKilled = "\nbroker.session.timeout.ms=120000\n"

func newPrivateBroker(t *testing.T, properties string) *privateBroker {
	t.Helper()
	server := testenv.StartKafka(t, loginProperties+properties)
	b := &privateBroker{server: server}
	b.config = Config{
		Brokers: []string{server.Addr()},
		SASL:    &SASL{Mechanism: "plain", Username: testUser, Password: secret.Value(testPassword)},
	}
	return b
}

func (b *privateBroker) Kill(testing.TB)   { b.server.Kill() }
func (b *privateBroker) Start(testing.TB)  { b.server.Start() }
func (b *privateBroker) Pause(testing.TB)  { b.server.Pause() }
func (b *privateBroker) Resume(testing.TB) { b.server.Resume() }

// newSink opens a sink that is closed at the end of the test.
func newSink(t testing.TB, config Config) *Sink {
	t.Helper()
	sink, err := New(config, logger())
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := sink.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return sink
}

func newMessage(t testing.TB, topic, key string) message.Message {
	t.Helper()
	return message.Message{
		ID: testenv.Name(t, "id"), Key: key, Topic: topic, Body: []byte("body"), Queue: "orders",
		DueAt: time.UnixMilli(1_900_000_000_123), ScheduledAt: time.UnixMilli(1_800_000_000_000), Attempt: 1, Token: "t",
	}
}

func newMessages(t testing.TB, topic, key string, count int) []message.Message {
	t.Helper()
	batch := make([]message.Message, count)
	for i := range batch {
		batch[i] = newMessage(t, topic, key)
	}
	return batch
}

// publish publishes under a deadline.
func publish(t testing.TB, sink *Sink, batch ...message.Message) []sinks.Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return sinks.Publish(ctx, sink, batch)
}

// publishOnceConnected publishes again while nothing could be sent: on a busy machine a login takes longer than it may.
func publishOnceConnected(t testing.TB, sink *Sink, batch ...message.Message) (outcomes []sinks.Outcome) {
	t.Helper()
	require.Eventually(t, func() bool {
		outcomes = publish(t, sink, batch...)
		return outcomes[0].Class != sinks.Unavailable
	}, patience, 20*time.Millisecond)
	return outcomes
}

// awaitPing waits until a login succeeds: on a busy machine one takes longer than a connect may.
func awaitPing(t testing.TB, sink *Sink) {
	t.Helper()
	require.Eventually(t, func() bool { return sink.Ping(t.Context()) == nil }, patience, 20*time.Millisecond)
}

func requireClass(t testing.TB, outcomes []sinks.Outcome, class sinks.Class, reason sinks.Reason) {
	t.Helper()
	for i, outcome := range outcomes {
		require.Equal(t, class, outcome.Class, "message %d: %v", i, outcome.Err)
		require.Equal(t, reason, outcome.Reason, "message %d: %v", i, outcome.Err)
	}
}
