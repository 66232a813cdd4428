package main_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// TestServersKeepAddressAndData writes something, ends the server both ways,
// and looks for it again at the same address.
func TestServersKeepAddressAndData(t *testing.T) {
	t.Parallel()
	for _, kind := range []struct {
		name        string
		start       func(testing.TB) *testenv.Server
		write, read func(t *testing.T, s *testenv.Server)
	}{
		{"redis", func(t testing.TB) *testenv.Server {
			return testenv.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
		}, writeRedis, readRedis},
		{"nats", func(t testing.TB) *testenv.Server { return testenv.StartNATS(t, "") }, writeNATS, readNATS},
		{"rabbitmq", func(t testing.TB) *testenv.Server {
			return testenv.StartRabbitMQ(t, "# plugins: rabbitmq_auth_mechanism_ssl\nheartbeat = 7")
		}, writeRabbitMQ, readRabbitMQ},
		{"kafka", func(t testing.TB) *testenv.Server { return testenv.StartKafka(t, "message.max.bytes=4096") }, writeKafka, readKafka},
		{"postgres", func(t testing.TB) *testenv.Server { return testenv.StartPostgres(t, "max_connections = 7") }, writePostgres, readPostgres},
		{"mariadb", func(t testing.TB) *testenv.Server { return testenv.StartMariaDB(t, "max_connections = 10") }, writeMariaDB, readMariaDB},
	} {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			s := kind.start(t)
			kind.write(t, s)
			addr := s.Addr()
			// The stop comes first: RabbitMQ has a new queue in memory only for a moment.
			s.Stop()
			s.Start()
			require.Equal(t, addr, s.Addr())
			kind.read(t, s)
			s.Kill()
			s.Start()
			require.Equal(t, addr, s.Addr())
			kind.read(t, s)
			require.NotEmpty(t, s.Log())
		})
	}
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	s := testenv.StartRedis(t)
	client := redisClient(t, s)
	hasty := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, ReadTimeout: 200 * time.Millisecond})
	defer func() { require.NoError(t, hasty.Close()) }()
	require.NoError(t, client.Ping(t.Context()).Err())
	s.Pause()
	require.Error(t, hasty.Ping(t.Context()).Err())
	s.Resume()
	require.NoError(t, client.Ping(t.Context()).Err())
	s.Pause()
	s.Kill()
	s.Start()
	require.NoError(t, client.Ping(t.Context()).Err())
}

func redisClient(t *testing.T, s *testenv.Server) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(s.URL())
	require.NoError(t, err)
	client := redis.NewClient(options)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

func writeRedis(t *testing.T, s *testenv.Server) {
	t.Helper()
	require.NoError(t, redisClient(t, s).Set(t.Context(), "k", "v", 0).Err())
}

func readRedis(t *testing.T, s *testenv.Server) {
	t.Helper()
	require.Equal(t, "v", redisClient(t, s).Get(t.Context(), "k").Val())
}

func jetStream(t *testing.T, s *testenv.Server) jetstream.JetStream {
	t.Helper()
	conn, err := nats.Connect(s.URL())
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	return js
}

func writeNATS(t *testing.T, s *testenv.Server) {
	t.Helper()
	js := jetStream(t, s)
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), "s", []byte("v"))
	require.NoError(t, err)
}

func readNATS(t *testing.T, s *testenv.Server) {
	t.Helper()
	stream, err := jetStream(t, s).Stream(t.Context(), "S")
	require.NoError(t, err)
	require.EqualValues(t, 1, stream.CachedInfo().State.Msgs)
}

func amqpChannel(t *testing.T, s *testenv.Server) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(s.URL())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.Equal(t, 7*time.Second, conn.Config.Heartbeat, "our configuration is in force")
	channel, err := conn.Channel()
	require.NoError(t, err)
	return channel
}

func writeRabbitMQ(t *testing.T, s *testenv.Server) {
	t.Helper()
	_, err := amqpChannel(t, s).QueueDeclare("q", true, false, false, false, nil)
	require.NoError(t, err)
	require.Contains(t, s.Log(), "rabbitmq_auth_mechanism_ssl")
}

func readRabbitMQ(t *testing.T, s *testenv.Server) {
	t.Helper()
	_, err := amqpChannel(t, s).QueueDeclarePassive("q", true, false, false, false, nil)
	require.NoError(t, err)
}

func writeKafka(t *testing.T, s *testenv.Server) {
	t.Helper()
	client := &kafka.Client{Addr: kafka.TCP(s.URL()), Transport: kafkaTransport(t)}
	created, err := client.CreateTopics(t.Context(), &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: "t", NumPartitions: 1, ReplicationFactor: 1}},
	})
	require.NoError(t, err)
	require.NoError(t, created.Errors["t"])
	// Kafka answers "not leader" for a moment after a topic was made.
	require.Eventually(t, func() bool {
		produced, err := client.Produce(t.Context(), &kafka.ProduceRequest{
			Topic: "t", RequiredAcks: kafka.RequireAll,
			Records: kafka.NewRecordReader(kafka.Record{Value: kafka.NewBytes([]byte("v"))}),
		})
		return err == nil && produced.Error == nil
	}, time.Minute, 10*time.Millisecond)
}

func readKafka(t *testing.T, s *testenv.Server) {
	t.Helper()
	client := &kafka.Client{Addr: kafka.TCP(s.URL()), Transport: kafkaTransport(t)}
	offsets, err := client.ListOffsets(t.Context(), &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{"t": {kafka.LastOffsetOf(0)}},
	})
	require.NoError(t, err)
	require.NoError(t, offsets.Topics["t"][0].Error)
	require.EqualValues(t, 1, offsets.Topics["t"][0].LastOffset)
	missing, err := client.Metadata(t.Context(), &kafka.MetadataRequest{Topics: []string{"missing"}})
	require.NoError(t, err)
	require.ErrorIs(t, missing.Topics[0].Error, kafka.UnknownTopicOrPartition, "no automatic topics")
}

func kafkaTransport(t *testing.T) *kafka.Transport {
	t.Helper()
	// The transport's goroutines live as long as this context.
	ctx, cancel := context.WithCancel(context.Background())
	transport := &kafka.Transport{Context: ctx}
	t.Cleanup(func() { transport.CloseIdleConnections(); cancel() })
	return transport
}
