package command

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// TestCheck has the exit codes, both forms, and a remedy that can be typed.
func TestCheck(t *testing.T) {
	t.Parallel()
	s := testenv.StartRedis(t, "--appendonly", "yes", "--maxmemory-policy", "noeviction")
	file := filepath.Join(t.TempDir(), "bridge.yaml")
	write := func(redis, nats string) {
		t.Helper()
		text := fmt.Sprintf("redis: {url: %q}\nqueues: {orders: {sink: events}}\nsinks: {events: {type: nats, url: %q}}\n", redis, nats)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	read := func(o outcome) checkReport {
		t.Helper()
		var report checkReport
		// A level is text only where it is written.
		require.NoError(t, json.Unmarshal([]byte(strings.NewReplacer(`"level":"error"`, `"level":2`, `"level":"warning"`, `"level":1`, `"level":"note"`, `"level":0`).
			Replace(o.stdout)), &report), o.stdout)
		require.Empty(t, o.stderr)
		return report
	}

	write(s.URL(), testenv.NATS(t)) // Without a topic, nothing is said of streams.
	o := bridge(t, "", "check", "--config", file)
	assert.Equal(t, 1, o.code, "%+v", o)
	assert.Contains(t, o.stdout, "WARNING  redis")
	assert.Contains(t, o.stdout, "warning: 0 errors, 1 warning\n")
	assert.Empty(t, o.stderr)
	report := read(bridge(t, "", "check", "--config", file, "-o", "json"))
	assert.Equal(t, "warning", report.Result)
	assert.Len(t, report.Checked, 3)

	missing := testenv.Name(t, "missing")
	o = bridge(t, "", "check", "--config", file, "-o", "json", "--topic", "orders="+missing, "--topic", missing+",x")
	report = read(o)
	assert.Equal(t, 2, o.code)
	assert.Equal(t, "error", report.Result)
	assert.Equal(t, 2, report.Errors, "a comma is part of a topic: %+v", report.Findings)

	write("redis://127.0.0.1:1", "nats://127.0.0.1:1")
	o = bridge(t, "", "check", "--config", file)
	assert.Equal(t, 2, o.code)
	assert.Contains(t, o.stdout, "redis_unreachable")
	assert.Contains(t, o.stdout, "correct sinks.events.url")

	require.NoError(t, os.WriteFile(file, []byte("what: 1\n"), 0o600))
	o = bridge(t, "", "check", "--config", file)
	assert.Equal(t, 2, o.code)
	assert.Contains(t, o.stderr, "line 1")
}

// TestCheckIsWell has nothing to say.
func TestCheckIsWell(t *testing.T) {
	t.Parallel()
	group := testenv.StartSentinel(t, "appendonly yes", "maxmemory-policy noeviction", "min-replicas-to-write 1")
	file := filepath.Join(t.TempDir(), "bridge.yaml")
	text := fmt.Sprintf("redis: {mode: sentinel, master: %s, sentinels: [%s]}\nqueues: {orders: {sink: events}}\nsinks: {events: {type: nats, url: %q}}\n",
		group.Master(), strings.Join(group.Addrs(), ", "), testenv.NATS(t))
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	o := bridge(t, "", "check", "--config", file)
	require.Equal(t, 0, o.code, "%+v", o)
	require.Contains(t, o.stdout, "ok: 0 errors, 0 warnings\n")
}
