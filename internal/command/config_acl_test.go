package command

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

func TestConfigACL(t *testing.T) {
	t.Parallel()
	file := setup(t).file
	all := bridge(t, "", "config", "acl", "--config", file)
	require.Equal(t, exitDone, all.code, all.stderr)
	lines := strings.Split(strings.TrimSpace(all.stdout), "\n")
	require.Len(t, lines, 4)
	for i, role := range []string{"bridge", "producer", "operator", "viewer"} {
		assert.True(t, strings.HasPrefix(lines[i], "ACL SETUSER "+role+" reset on >PASSWORD ~"), lines[i])
	}
	one := bridge(t, "", "config", "acl", "--config", file, "--role", "producer", "--queue", "orders", "--format", "acl", "--redis", "6.2")
	assert.Contains(t, one.stdout, "user producer on >PASSWORD ~")
	assert.Contains(t, one.stdout, ":{orders:*}:* ")
	assert.Contains(t, one.stdout, "+publish")
	assert.NotContains(t, one.stdout, "+spublish")
	assert.Equal(t, exitUsage, bridge(t, "", "config", "acl", "--config", file, "--queue", "nowhere").code)
	assert.Equal(t, exitUsage, bridge(t, "", "config", "acl", "--config", file, "--sentinel").code, "it has none")
}

// TestConfigACLFollowsTheConfiguration: rights depend on how Redis is deployed and used.
func TestConfigACLFollowsTheConfiguration(t *testing.T) {
	t.Parallel()
	const rest = `
queues: {orders: {sink: events, durability: fsync}, reminders: {sink: events}}
sinks: {events: {type: nats, url: "nats://127.0.0.1:1"}}
`
	for redis, c := range map[string]struct{ user, more string }{
		`{url: "redis://shop:secret@127.0.0.1:6379/2"}`:                                             {"shop", "+select "},
		`{url: "redis://127.0.0.1:6379/0", username: shop}`:                                         {"shop", ""},
		`{mode: cluster, addrs: ["127.0.0.1:1"]}`:                                                   {"bridge", "+cluster|slots "},
		`{mode: sentinel, master: m, sentinels: ["127.0.0.1:1"], sentinel_username: finder}`:        {"bridge", ""},
		`{mode: sentinel, master: m, sentinels: ["127.0.0.1:1"], username: shop, password: secret}`: {"shop", ""},
	} {
		file := writeFile(t, "redis: "+redis+rest)
		all := bridge(t, "", "config", "acl", "--config", file, "--role", "bridge")
		assert.True(t, strings.HasPrefix(all.stdout, "ACL SETUSER "+c.user+" reset "), "%s: %+v", redis, all)
		assert.Contains(t, all.stdout, c.more)
		assert.Contains(t, all.stdout, "+waitaof ")
		assert.NotContains(t, all.stdout, "secret")
		one := bridge(t, "", "config", "acl", "--config", file, "--role", "bridge", "--queue", "reminders")
		assert.NotContains(t, one.stdout, "+waitaof ")
		if strings.Contains(redis, "finder") {
			sentinel := bridge(t, "", "config", "acl", "--config", file, "--sentinel", "--format", "acl")
			assert.True(t, strings.HasPrefix(sentinel.stdout, "user finder on >PASSWORD resetchannels &+switch-master "), "%+v", sentinel)
		}
	}
}

// TestCommandsOfRoles runs every command that needs Redis as an operator of one queue, and
// those that change nothing as a viewer. Neither is ever denied anything.
func TestCommandsOfRoles(t *testing.T) {
	t.Parallel()
	users := filepath.Join(t.TempDir(), "users.acl")
	require.NoError(t, os.WriteFile(users, nil, 0o600))
	f := setupAt(t, testenv.StartRedis(t, "--aclfile", users).URL(), 4, "nats://127.0.0.1:1", "")
	lines := bridge(t, "", "config", "acl", "--config", f.file, "--queue", "orders", "--format", "acl")
	require.Equal(t, exitDone, lines.code, lines.stderr)
	require.NoError(t, os.WriteFile(users, []byte("user default on nopass ~* &* +@all\n"+lines.stdout), 0o600))
	require.NoError(t, f.rdb.Do(t.Context(), "acl", "load").Err())

	f.bury("dead-1", "dead-2", "dead-3")
	f.ok("schedule", "--topic", "t", "--in", "1h", "--id", "a", "--tag", "red", "x")
	for _, user := range []string{"viewer", "operator"} {
		as := f.as(user)
		as.ok("get", "--id", "a")
		as.ok("list")
		as.ok("list", "--tag", "red")
		as.ok("dead list")
		as.ok("dead show", "dead-1")
		as.ok("forecast")
		as.ok("jobs list")
		as.ok("shards list")
		for _, args := range [][]string{{"stats", "orders", "--over", "10ms"}, {"top", "orders", "--count", "1"}} {
			o := bridge(t, "", append(args, "--config", as.file)...)
			require.Equal(t, exitDone, o.code, "%v: %+v", args, o)
		}
	}
	as := f.as("operator")
	as.ok("schedule", "--topic", "t", "--in", "1h", "--id", "b", "x")
	as.ok("schedule", "--topic", "t", "--in", "2h", "--id", "b", "--conflict", "replace", "x")
	as.ok("reschedule", "--id", "b", "--in", "1h")
	as.ok("publish-now", "--id", "b")
	as.ok("cancel", "--id", "b")
	job := fmt.Sprint(as.ok("cancel", "--all", "--tag", "red", "--no-wait", "-o", "json").object(t)["job"])
	as.ok("jobs show", job)
	as.ok("jobs stop", job)
	as.ok("dead redrive", "dead-1")
	as.ok("dead purge", "dead-2")
	as.ok("pause")
	as.ok("resume")
	require.NoError(t, f.rdb.HDel(t.Context(), fmt.Sprintf("%s:{orders:%d}:msg", f.queue.Keys().Prefix, home(t, f, "a")), "a").Err())
	verified := bridge(t, "", "verify", "orders", "--repair", "--config", as.file)
	assert.Contains(t, verified.stderr, "2 of them mended", "%+v", verified)
	as.ok("shards set", "8")

	denied, err := f.rdb.ACLLog(t.Context(), 100).Result()
	require.NoError(t, err)
	for _, entry := range denied {
		t.Errorf("%s was denied %s %s", entry.Username, entry.Reason, entry.Object)
	}
	assert.NotEqual(t, exitDone, f.as("viewer").run("cancel", "--id", "dead-3").code)
}

// home is the shard where the message is.
func home(t *testing.T, f *fixture, id string) int {
	t.Helper()
	layout, err := f.queue.AwaitLayout(t.Context())
	require.NoError(t, err)
	return layout.Home(id, "")
}
