package fit

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/check"
)

func TestTooOld(t *testing.T) {
	t.Parallel()
	for version, old := range map[string]bool{"6.0.16": true, "5.0.7": true, "6.2.0": false, "7.0.15": false, "8.0.1": false, "": false, "x": false} {
		assert.Equal(t, old, Info{"redis_version": version}.IsTooOld(), version)
	}
}

// TestInfo has a sound Redis, and then one thing that is not.
func TestInfo(t *testing.T) {
	t.Parallel()
	sound := ParseInfo("redis_version:7.2.4\r\nrole:master\r\ncluster_enabled:0\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n" +
		"connected_slaves:1\r\nmaxmemory:1000000\r\nused_memory:100000\r\nused_memory_rss:200000\r\ntotal_system_memory:9000000\r\n" +
		"connected_clients:10\r\nmaxclients:10000\r\naof_last_write_status:ok\r\nrdb_last_bgsave_status:ok\r\nloading:0\r\n")
	want := Want{Mode: "standalone", Replicas: 1, Fsync: true}
	judge := func(info Info) []string {
		if wrong := info.misplaced(want.Mode); wrong != nil {
			return []string{wrong.Code}
		}
		codes := []string{}
		for _, list := range [][]string{codesOf(Settings(info)), codesOf(info.state()), codesOf(info.durability(want))} {
			codes = append(codes, list...)
		}
		return codes
	}
	require.Empty(t, judge(sound))
	for _, c := range []struct{ field, value, code string }{
		{"redis_version", "6.0.9", "redis_version"},
		{"redis_version", "7.0.15", "redis_waitaof"},
		{"used_memory", "850000", "redis_memory"},
		{"used_memory", "990000", "redis_full"},
		{"maxmemory", "10000000", "redis_maxmemory"},
		{"connected_clients", "9000", "redis_clients"},
		{"aof_last_write_status", "err", "redis_disk"},
		{"rdb_last_bgsave_status", "err", "redis_snapshot"},
		{"loading", "1", "redis_loading"},
		{"role", "slave", "redis_mode"},
		{"cluster_enabled", "1", "redis_mode"},
		{"redis_mode", "sentinel", "redis_mode"},
		{"connected_slaves", "0", "redis_replicas"},
		{"connected_slaves", "2", "redis_replicas"},
	} {
		info := maps.Clone(sound)
		info[c.field] = c.value
		assert.Contains(t, judge(info), c.code, "%s %s", c.field, c.value)
	}
	large := maps.Clone(sound)
	large["maxmemory"], large["used_memory_rss"], large["total_system_memory"] = "1073741824", "2147483648", "8589934592"
	assert.Equal(t, []string{"redis_fragmentation"}, judge(large))
	large["maxmemory"], large["used_memory_rss"] = "0", "8000000000"
	assert.Equal(t, []string{"redis_memory"}, judge(large))
}

func TestClocksApart(t *testing.T) {
	t.Parallel()
	at := func(off time.Duration) observation { return observation{off: off, hasClock: true} }
	assert.Empty(t, apart([]observation{at(0), at(500 * time.Millisecond), {off: time.Hour}}))
	assert.Equal(t, []string{"clock_skew"}, codesOf(apart([]observation{at(-time.Second), at(time.Second)})))
}

// TestDenied knows the texts of all versions.
func TestDenied(t *testing.T) {
	t.Parallel()
	for text, denied := range map[string]bool{
		"The user executing the script can't run this command or subcommand":                       true,
		"ERR ACL failure in script: User a has no permissions to run the 'zadd' command script: x": true,
		"NOPERM User a has no permissions to run the 'eval' command":                               true,
		"Write commands are not allowed from read-only scripts. script: 0, on @user_script:1.":     false,
		"": false,
	} {
		assert.Equal(t, denied, isDenied(text), text)
	}
}

func codesOf(findings []check.Finding) []string {
	var codes []string
	for _, f := range findings {
		codes = append(codes, f.Code)
	}
	return codes
}
