package redis_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/redis"
	"github.com/delaybridge/delaybridge/internal/sinks/sinktest"
)

// One thing is wrong at a time.
func TestCheck(t *testing.T) {
	t.Parallel()
	server := testenv.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	b := broker{options: at(server.Addr())}
	client := b.client(t)
	b.MakeTopic(t, "orders", sinktest.TopicOptions{})
	require.NoError(t, client.Set(t.Context(), "plain", "value", 0).Err())
	plan := sinks.Plan{Topics: []string{"orders"}, MaxMessage: 960 << 10}
	sink := b.newSink(t, redis.Config{})
	require.Empty(t, sink.Check(t.Context(), plan))

	wrong := plan
	wrong.Topics = []string{"orders", "missing", "plain"}
	require.Equal(t, []string{"E redis_sink_stream", "E redis_sink_stream"}, sinktest.Told(sink.Check(t.Context(), wrong)))
	exists, err := client.Exists(t.Context(), "missing").Result()
	require.NoError(t, err)
	require.Zero(t, exists, "looking makes nothing")
	wrong = plan
	wrong.MaxMessage = 600 << 20
	require.Equal(t, []string{"W redis_sink_message_size"}, sinktest.Told(sink.Check(t.Context(), wrong)))
	for _, c := range []struct{ set, value, back, want string }{
		{"maxmemory-policy", "allkeys-lru", "noeviction", "W redis_sink_eviction"},
		{"appendfsync", "everysec", "always", "W redis_sink_fsync"},
		{"appendonly", "no", "yes", "W redis_sink_aof"},
	} {
		require.NoError(t, client.ConfigSet(t.Context(), c.set, c.value).Err())
		require.Equal(t, []string{c.want}, sinktest.Told(sink.Check(t.Context(), plan)))
		require.NoError(t, client.ConfigSet(t.Context(), c.set, c.back).Err())
	}
	require.NoError(t, client.Do(t.Context(), "ACL", "SETUSER", "hidden", "on", ">"+password, "~orders", "+xadd", "+ping", "+hello").Err())
	hidden := b
	hidden.options.Username, hidden.options.Password = "hidden", password
	require.Equal(t, []string{"N redis_sink_hidden", "N redis_sink_hidden"}, sinktest.Told(hidden.newSink(t, redis.Config{}).Check(t.Context(), plan)))
	for _, lacking := range []string{"-xadd", "resetkeys"} {
		require.NoError(t, client.Do(t.Context(), "ACL", "SETUSER", "lacking", "reset", "on", ">"+password, "~*", "+@all", lacking).Err())
		denied := b
		denied.options.Username, denied.options.Password = "lacking", password
		require.Contains(t, sinktest.Told(denied.newSink(t, redis.Config{}).Check(t.Context(), plan)), "E redis_sink_denied", lacking)
	}
	entries, err := client.XLen(t.Context(), "orders").Result()
	require.NoError(t, err)
	require.Zero(t, entries, "looking adds nothing")
	hidden.options.Password = "wrong"
	require.Equal(t, []string{"E redis_sink_login"}, sinktest.Told(hidden.newSink(t, redis.Config{}).Check(t.Context(), plan)))
	require.NoError(t, client.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err())
	require.Contains(t, sinktest.Told(sink.Check(t.Context(), plan)), "E redis_sink_replica")
	server.Kill()
	require.Equal(t, []string{"E redis_sink_unreachable"}, sinktest.Told(sink.Check(t.Context(), plan)))
}

func TestCheckOfACluster(t *testing.T) {
	t.Parallel()
	c := testenv.StartCluster(t, "appendonly yes", "appendfsync always")
	b := broker{options: at(c.Addrs()...), isCluster: true}
	for _, topic := range []string{"a", "b", "c"} {
		b.MakeTopic(t, topic, sinktest.TopicOptions{})
	}
	sink := b.newSink(t, redis.Config{})
	plan := sinks.Plan{Topics: []string{"a", "b", "c"}, MaxMessage: 960 << 10}
	require.Empty(t, sink.Check(t.Context(), plan))
	one := broker{options: at(c.PrimaryOf("a").Addr())}.client(t)
	require.NoError(t, one.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	findings := sink.Check(t.Context(), plan)
	require.Equal(t, []string{"W redis_sink_eviction"}, sinktest.Told(findings))
	require.Equal(t, c.PrimaryOf("a").Addr(), findings[0].Subject)
}
