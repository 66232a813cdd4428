package command

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// TestQueueFiles: queues of a team come and go with its file while the bridge runs, and a wrong file is
// nobody else's trouble.
func TestQueueFiles(t *testing.T) {
	t.Parallel()
	url, topic, addr := testenv.NATS(t), testenv.Name(t, "t"), freeAddr(t)
	f := setupWith(t, 2, url, addr)
	text, err := os.ReadFile(f.file)
	require.NoError(t, err)
	teams := filepath.Join(filepath.Dir(f.file), "teams")
	require.NoError(t, os.Mkdir(teams, 0o700))
	require.NoError(t, os.WriteFile(f.file, fmt.Appendf(text, "queue_files: {teams: {files: ['teams/*.yaml'], prefix: '*-', max_shards: 2}}\n"), 0o600))
	write := func(team, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(teams, team+".yaml"), []byte(text), 0o600))
	}
	write("wrong", "queues: {wrong-a: {sink: nowhere}}")
	got := subscribe(t, url, topic)
	p := start(t, os.Environ(), "run", "--config", f.file)
	p.await("queue file is wrong")
	assert.Contains(t, p.output(), "wrong.yaml: line 1: queues.wrong-a.sink")

	invalid := bridge(t, "", "config", "validate", "--config", f.file)
	assert.Equal(t, exitUsage, invalid.code)
	assert.Contains(t, invalid.stderr, `teams/wrong.yaml: line 1: queues.wrong-a.sink: "nowhere" is no sink`)
	o := bridge(t, "", "stats", "--config", f.file, "--over", "0s", "orders")
	assert.Equal(t, exitDone, o.code, o.stderr)
	assert.Contains(t, o.stderr, "warning: queue file ", "an operator who looks at another queue is not held up")

	write("pay", "owner: payments\nqueues: {pay-bills: {sink: events}}")
	assert.Contains(t, p.await("configuration reloaded"), `"added":["pay-bills"]`)
	schedule := func(id, in string) {
		o := bridge(t, "", "schedule", "--config", f.file, "--queue", "pay-bills", "--topic", topic, "--in", in, "--id", id, "x")
		require.Equal(t, exitDone, o.code, o.stderr)
	}
	require.Eventually(t, func() bool {
		return bridge(t, "", "stats", "--config", f.file, "--over", "0s", "pay-bills").code == exitDone
	}, commandTimeout, 100*time.Millisecond)
	schedule("a", "0s")
	_, err = got.NextMsg(commandTimeout)
	require.NoError(t, err)
	assert.Contains(t, page(t, addr, "/api/v1/queues/pay-bills"), `"owner":"payments"`)
	assert.Contains(t, page(t, addr, "/metrics"), `delaybridge_queue_info{owner="payments",queue="pay-bills"} 1`)
	assert.Contains(t, page(t, addr, "/metrics"), `delaybridge_queue_files_wrong 1`)
	assert.Contains(t, bridge(t, "", "stats", "--config", f.file, "--over", "0s", "-o", "wide", "pay-bills").stdout, "payments")

	schedule("b", "1h")
	write("pay", "queues: {pay-bills: {sink: events, shards: 3}}")
	assert.Contains(t, p.await("queue file is wrong"), `queues.pay-bills.shards: 3 is too large, queue_files.teams.max_shards allows 2`)
	require.NoError(t, os.Remove(filepath.Join(teams, "pay.yaml")))
	assert.Contains(t, p.await("queue removed"), `"waiting":1`)
	write("pay", "queues: {pay-bills: {sink: events}}")
	p.await(`"added":["pay-bills"]`)
	o = bridge(t, "", "get", "--config", f.file, "--queue", "pay-bills", "--id", "b")
	assert.Contains(t, o.stdout, "scheduled", o.stderr)
	p.signal(syscall.SIGTERM)
	assert.Equal(t, exitDone, p.wait(), p.output())
}
