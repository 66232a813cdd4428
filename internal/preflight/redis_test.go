package preflight_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/rights"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// redisOnly has a sink that is not reached, and of which the tests do not ask.
const redisOnly = "redis: %s\nqueues: {orders: {sink: events%s}}\nsinks: {events: {type: nats, url: \"nats://127.0.0.1:1\"}}\nadmin: {listen: \"\"}\n"

func TestRedis(t *testing.T) {
	t.Parallel()
	fit := []string{"--appendonly", "yes", "--maxmemory-policy", "noeviction"}
	for name, c := range map[string]struct {
		args []string
		// command is run before; url and queue are added to the configuration.
		command, url, queue string
		codes               []string
		says                string // of the first code
	}{
		"no persistence":   {[]string{"--maxmemory-policy", "noeviction"}, "", "", "", []string{"warning redis_aof", "warning redis_replica"}, "appendonly"},
		"allkeys":          {[]string{"--appendonly", "yes", "--maxmemory-policy", "allkeys-lru"}, "", "", "", []string{"error redis_eviction", "warning redis_replica"}, "allkeys-lru"},
		"volatile":         {[]string{"--appendonly", "yes", "--maxmemory-policy", "volatile-ttl"}, "", "", "", []string{"warning redis_eviction", "warning redis_replica"}, "volatile-ttl"},
		"wrong password":   {append(fit, "--requirepass", "secret"), "", "redis://:hidden@%s/0", "", []string{"error redis_login"}, "WRONGPASS"},
		"no password":      {append(fit, "--requirepass", "secret"), "", "", "", []string{"error redis_login"}, "NOAUTH"},
		"fsync no":         {append(fit, "--appendfsync", "no"), "", "", "", []string{"warning redis_fsync", "warning redis_replica"}, "appendfsync"},
		"torn file":        {append(fit, "--appendfsync", "always"), "", "", "", []string{"warning redis_aof_truncated", "warning redis_replica"}, "aof-load-truncated"},
		"whole file":       {append(fit, "--appendfsync", "always", "--aof-load-truncated", "no"), "", "", "", []string{"warning redis_replica"}, "no replica"},
		"replica":          {append(fit, "--replicaof", "127.0.0.1 1"), "", "", "", []string{"error redis_mode"}, "replica"},
		"too few replicas": {fit, "", "", ", durability: replicas, replicas: 2", []string{"error redis_replicas", "warning redis_replica"}, "asks for 2"},
		"script limit":     {append(fit, "--lua-time-limit", "5"), "", "", "", []string{"warning redis_replica", "warning redis_script_limit"}, "no replica"},
		"full":             {fit, "config set maxmemory 500000", "", "", []string{"error redis_full", "warning redis_replica"}, "maxmemory"},
		"denied command":   {fit, "acl setuser default -zadd -hset", "", "", []string{"error redis_denied", "warning redis_replica"}, "+hset +zadd"},
		"denied keys":      {fit, "acl setuser default resetkeys ~other:*", "", "", []string{"error redis_denied", "note queue_unread", "warning redis_replica"}, "~delay:*"},
		"denied info":      {fit, "acl setuser default -info", "", "", []string{"warning redis_hidden"}, "+info"},
		"denied scripts":   {fit, "acl setuser default -eval", "", "", []string{"error redis_denied", "note queue_unread", "warning redis_replica"}, "+eval"},
		"denied wait":      {fit, "acl setuser default -wait", "", ", durability: replicas, replicas: 1", []string{"error redis_denied", "error redis_replicas", "warning redis_replica"}, "+wait"},
		"denied hints":     {fit, "acl setuser default -ssubscribe", "", "", []string{"warning redis_denied", "warning redis_replica"}, "+ssubscribe"},
		"muted hints":      {fit, "acl setuser default -spublish", "", "", []string{"warning redis_denied", "warning redis_replica"}, "+spublish"},
		"one key denied":   {fit, "acl setuser default resetkeys ~delay:{orders:*}:* ~delay:orders:*", "", "", []string{"error redis_denied", "warning redis_replica"}, "delay:{delay:orders:instances}:paused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testenv.StartRedis(t, c.args...)
			if c.command != "" {
				words := []any{}
				for word := range strings.FieldsSeq(c.command) {
					words = append(words, word)
				}
				require.NoError(t, client(t, s.Addr()).Do(t.Context(), words...).Err())
			}
			url := s.URL()
			if c.url != "" {
				url = fmt.Sprintf(c.url, s.Addr())
			}
			findings := look(t, "redis", nil, redisOnly, fmt.Sprintf("{url: %q}", url), c.queue)
			require.Equal(t, c.codes, codes(findings), "%+v", findings)
			_, code, _ := strings.Cut(c.codes[0], " ")
			f := require1(t, findings, code)
			assert.Contains(t, f.What+f.Remedy, c.says)
			assert.NotContains(t, fmt.Sprint(findings), "hidden@")
		})
	}
}

func TestRedisUnreachable(t *testing.T) {
	t.Parallel()
	for name, redis := range map[string]string{
		"refused": `{url: "redis://127.0.0.1:1"}`, "no such host": `{url: "redis://nowhere.invalid:6379"}`,
		"cluster": `{mode: cluster, addrs: ["127.0.0.1:1"]}`,
	} {
		findings := look(t, "redis", nil, redisOnly, redis, "")
		assert.Equal(t, []string{"error redis_unreachable"}, codes(findings), name)
	}
	findings := look(t, "redis", nil, redisOnly, `{mode: sentinel, master: m, sentinels: ["127.0.0.1:1"]}`, "")
	assert.Equal(t, []string{"error redis_unreachable", "warning sentinel_few", "warning sentinel_unreachable"}, codes(findings))
}

// TestSentinel has a sound group first, and then asks for what it does not have.
func TestSentinel(t *testing.T) {
	t.Parallel()
	group := testenv.StartSentinel(t, "appendonly yes", "maxmemory-policy noeviction", "min-replicas-to-write 1")
	with := func(replicas int, master string, sentinels ...string) []string {
		redis := fmt.Sprintf("{mode: sentinel, master: %s, sentinels: [%s]}", master, strings.Join(sentinels, ", "))
		return codes(look(t, "redis", nil, redisOnly, redis, fmt.Sprint(", durability: replicas, replicas: ", replicas)))
	}
	ask := func(master string, sentinels ...string) []string { return with(2, master, sentinels...) }
	require.Empty(t, ask(group.Master(), group.Addrs()...))
	require.Equal(t, []string{"warning redis_replicas"}, with(1, group.Master(), group.Addrs()...))
	require.Equal(t, []string{"error redis_unreachable", "error sentinel_master", "warning sentinel_few"}, ask("other", group.Addrs()...))
	require.Equal(t, []string{"warning sentinel_few", "warning sentinel_unreachable"}, ask(group.Master(), group.Addrs()[0], "127.0.0.1:1"))
	sentinel := fmt.Sprintf("{url: %q}", "redis://"+group.Addrs()[0])
	require.Equal(t, []string{"error redis_mode"}, codes(look(t, "redis", nil, redisOnly, sentinel, "")))
}

// TestCluster has a sound cluster, one primary of which is then spoilt.
func TestCluster(t *testing.T) {
	t.Parallel()
	group := testenv.StartCluster(t, "appendonly yes", "maxmemory-policy noeviction", "min-replicas-to-write 1")
	cluster := fmt.Sprintf("{mode: cluster, addrs: [%s]}", strings.Join(group.Addrs(), ", "))
	findings := look(t, "redis", nil, redisOnly, cluster, "")
	require.Empty(t, findings)
	primary := group.PrimaryOf("a")
	require.NoError(t, client(t, primary.Addr()).ConfigSet(t.Context(), "appendonly", "no").Err())
	require.NoError(t, client(t, primary.Addr()).Do(t.Context(), "acl", "setuser", "default", "-zrem").Err())
	findings = look(t, "redis", nil, redisOnly, cluster, "")
	require.Equal(t, []string{"error redis_denied", "warning redis_aof"}, codes(findings))
	for _, f := range findings {
		assert.Contains(t, f.Subject, primary.Addr())
	}
	standalone := fmt.Sprintf("{url: %q}", "redis://"+primary.Addr())
	require.Equal(t, []string{"error redis_mode"}, codes(look(t, "redis", nil, redisOnly, standalone, "")))
	alone := testenv.StartRedis(t)
	findings = look(t, "redis", nil, redisOnly, fmt.Sprintf("{mode: cluster, addrs: [%q]}", alone.Addr()), "")
	require.Equal(t, []string{"error redis_mode"}, codes(findings), "%+v", findings)
}

// TestRights: with the rights of a bridge, for all queues or for one, nothing is missed;
// each that is left out is found.
func TestRights(t *testing.T) {
	t.Parallel()
	s := testenv.StartRedis(t, "--appendonly", "yes", "--maxmemory-policy", "noeviction")
	as := fmt.Sprintf("{url: %q, username: bridge, password: PASSWORD}", s.URL())
	for _, queues := range [][]string{nil, {"orders"}} {
		line := rights.For(rights.Bridge, rights.Setup{Prefix: "delay", Queues: queues}).SetUser("bridge", "PASSWORD")
		words := []any{}
		for word := range strings.FieldsSeq(line) {
			words = append(words, word)
		}
		require.NoError(t, client(t, s.Addr()).Do(t.Context(), words...).Err())
		require.Equal(t, []string{"warning redis_replica"}, codes(look(t, "redis", nil, redisOnly, as, "")))
	}
	for _, right := range rights.Data(rights.Bridge, false) {
		require.NoError(t, client(t, s.Addr()).Do(t.Context(), "acl", "setuser", "bridge", "-"+right).Err())
		f := require1(t, look(t, "redis", nil, redisOnly, as, ""), "redis_denied")
		assert.Contains(t, f.Remedy, "+"+right)
		require.NoError(t, client(t, s.Addr()).Do(t.Context(), "acl", "setuser", "bridge", "+"+right).Err())
	}
}

// TestScriptTime has an engine that tells no time inside scripts.
func TestScriptTime(t *testing.T) {
	t.Parallel()
	fake := miniredis.RunT(t)
	fake.Server().SetPreHook(func(peer *server.Peer, command string, args ...string) bool {
		switch {
		case command == "INFO":
			peer.WriteBulk("redis_version:7.4.0\r\nmaxmemory_policy:noeviction\r\nconnected_slaves:1\r\n")
		case command == "EVAL" && strings.Contains(args[0], "'TIME'"):
			peer.WriteBulk("0")
		default:
			return false
		}
		return true
	})
	findings := look(t, "redis", nil, redisOnly, fmt.Sprintf("{url: %q}", "redis://"+fake.Addr()), "")
	require1(t, findings, "redis_script_time")
}

// TestNothingChanges has what waits, and finds it as it was.
func TestNothingChanges(t *testing.T) {
	t.Parallel()
	s := testenv.StartRedis(t)
	rdb := client(t, s.Addr())
	queue := store.New(rdb, "delay", "orders")
	_, err := queue.Layouts().Ensure(t.Context(), store.Layout{Shards: 3, Sink: message.NATS, MaxMessage: 1 << 20})
	require.NoError(t, err)
	sdk, err := delay.NewClient(rdb, "orders")
	require.NoError(t, err)
	for i := range 30 {
		_, err := sdk.Schedule(t.Context(), delay.Message{ID: fmt.Sprint(i), Topic: fmt.Sprint("topic.", i%3)}, delay.After(time.Hour))
		require.NoError(t, err)
	}
	topics, err := inspect.NewAdmin(queue).Topics(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"topic.0", "topic.1", "topic.2"}, topics)
	before := dump(t, rdb)
	findings := look(t, "redis", nil, redisOnly, fmt.Sprintf("{url: %q}", s.URL()), ", shards: 8")
	f := require1(t, findings, "queue_shards")
	assert.Contains(t, f.Remedy, "--queue orders")
	require.Equal(t, before, dump(t, rdb))
}

// dump is all that a Redis holds.
func dump(t *testing.T, rdb *redis.Client) map[string]string {
	t.Helper()
	keys, err := rdb.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	all := map[string]string{}
	for _, key := range keys {
		all[key], err = rdb.Dump(t.Context(), key).Result()
		require.NoError(t, err)
	}
	return all
}
