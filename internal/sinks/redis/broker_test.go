package redis_test

import (
	"context"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/redis"
	"github.com/delaybridge/delaybridge/internal/sinks/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const password = "correct horse"

// smallest is the least that Redis may be told as its proto-max-bulk-len.
const smallest = 1 << 20

func TestConformance(t *testing.T) {
	sinktest.Run(t, sinktest.Harness{
		Shared: broker{options: at(testenv.StartRedis(t, "--proto-max-bulk-len", "1mb").Addr())},
		Private: func(t *testing.T) sinktest.PrivateBroker {
			server := testenv.StartRedis(t, "--proto-max-bulk-len", "1mb", "--requirepass", password,
				"--appendonly", "yes", "--appendfsync", "always")
			options := at(server.Addr())
			options.Password = password
			return privateBroker{broker{options: options}, server}
		},
	})
}

func at(addrs ...string) goredis.UniversalOptions { return goredis.UniversalOptions{Addrs: addrs} }

// broker is a Redis: a Cluster, or behind Sentinels where the options have a master's name.
type broker struct {
	options   goredis.UniversalOptions
	isCluster bool
}

type privateBroker struct {
	broker
	server *testenv.Server
}

func (b privateBroker) Kill(testing.TB)   { b.server.Kill() }
func (b privateBroker) Pause(testing.TB)  { b.server.Pause() }
func (b privateBroker) Resume(testing.TB) { b.server.Resume() }
func (b privateBroker) Start(testing.TB)  { b.server.Start() }

func (broker) Features() sinktest.Features {
	return sinktest.Features{
		Gaps: map[string]string{
			"full_topic":          "a stream has no limit of its own at which it refuses; where the server is full, see `redis.TestFullServer`",
			"too_large_for_topic": "no stream has a limit of its own for a message",
			"hanging_topic":       "a server answers for all its streams or for none; a node of a Cluster that hangs, see `redis.TestAHangingNodeDelaysNoOther`",
		},
		Keyed:        true,
		Missing:      sinks.ReasonTopicMissing,
		InvalidTopic: "orders\x00",
		TooLarge:     smallest + 1,
		Connections:  4,
		Recovery:     5 * time.Second,
	}
}

func (b broker) NewSink(t testing.TB, options sinktest.Options) sinks.Sink {
	t.Helper()
	one := b
	if options.BytesPerSecond > 0 {
		proxy := testenv.NewProxy(t, b.options.Addrs[0])
		proxy.Rate(options.BytesPerSecond)
		one.options.Addrs = []string{proxy.Addr()}
	}
	if options.WrongPassword {
		one.options.Password = "wrong"
	}
	return one.newSink(t, redis.Config{PublishTimeout: options.PublishTimeout})
}

func (b broker) newSink(t testing.TB, config redis.Config) *redis.Sink {
	t.Helper()
	options := b.plain()
	redis.Tune(&options, config)
	sink := redis.New(b.connect(options), config)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := sink.Close(ctx); err != nil {
			t.Errorf("close sink: %v", err)
		}
	})
	return sink
}

// plain are options as the bridge has them for its own Redis.
func (b broker) plain() goredis.UniversalOptions {
	options := b.options
	options.DialTimeout, options.DisableIdentity = 2*time.Second, true
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return options
}

func (b broker) connect(options goredis.UniversalOptions) goredis.UniversalClient {
	switch {
	case b.isCluster:
		cluster := options.Cluster()
		cluster.ClusterStateReloadInterval = time.Second
		return goredis.NewClusterClient(cluster)
	case options.MasterName != "":
		return goredis.NewFailoverClient(options.Failover())
	default:
		return goredis.NewClient(options.Simple())
	}
}

// client is one for the test itself.
func (b broker) client(t testing.TB) goredis.UniversalClient {
	t.Helper()
	options := b.plain()
	options.ReadTimeout = time.Minute // It reads whole streams, on a machine that may be busy.
	client := b.connect(options)
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return client
}

// MakeTopic makes the stream as a consumer does.
func (b broker) MakeTopic(t testing.TB, topic string, _ sinktest.TopicOptions) {
	t.Helper()
	require.NoError(t, b.client(t).XGroupCreateMkStream(context.Background(), topic, "consumers", "0").Err())
}

// DeleteTopic implements [sinktest.TopicDeleter].
func (b broker) DeleteTopic(t testing.TB, topic string) {
	t.Helper()
	require.NoError(t, b.client(t).Del(context.Background(), topic).Err())
}

// Read reads the stream itself: no group hides anything.
func (b broker) Read(t testing.TB, topic string, atLeast int) []sinktest.StoredMessage {
	t.Helper()
	client := b.client(t)
	require.Eventually(t, func() bool {
		n, err := client.XLen(t.Context(), topic).Result()
		return err == nil && int(n) >= atLeast
	}, 2*time.Minute, 20*time.Millisecond, "%d messages in %s", atLeast, topic)
	entries, err := client.Do(t.Context(), "XRANGE", topic, "-", "+").Slice()
	require.NoError(t, err)
	stored := make([]sinktest.StoredMessage, len(entries))
	for i, entry := range entries {
		stored[i] = parse(t, entry)
	}
	return stored
}

// parse looks at all the fields, in their order: a map would hide one that is there twice.
func parse(t testing.TB, entry any) (stored sinktest.StoredMessage) {
	t.Helper()
	fields := entry.([]any)[1].([]any)
	stored.Headers = map[string]string{}
	last := len(fields) - 2
	require.Equal(t, redis.FieldBody, fields[last])
	stored.Body = []byte(fields[last+1].(string))
	for i := 0; i < last; i += 2 {
		name, value := fields[i].(string), fields[i+1].(string)
		if name == redis.FieldKey {
			stored.Key = value
			continue
		}
		require.NotContains(t, stored.Headers, name)
		stored.Headers[name] = strings.Clone(value)
	}
	return stored
}
