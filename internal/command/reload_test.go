package command

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// TestReload changes the configuration of a bridge that runs: what it takes, and what it
// refuses as a whole.
func TestReload(t *testing.T) {
	t.Parallel()
	url, topic, addr := testenv.NATS(t), testenv.Name(t, "t"), freeAddr(t)
	f := setupWith(t, 2, url, addr)
	text, err := os.ReadFile(f.file)
	require.NoError(t, err)
	write := func(pairs ...string) {
		require.NoError(t, os.WriteFile(f.file, []byte(strings.NewReplacer(pairs...).Replace(string(text))), 0o600))
	}
	const plain = "max_message: 1KiB"
	write(plain, plain+", rate: {messages: 5}")
	got := subscribe(t, url, topic)
	p := start(t, os.Environ(), "run", "--config", f.file)
	p.awaitPolling()

	requests := make([]delay.Request, 600)
	for i := range requests {
		requests[i] = delay.Request{Message: delay.Message{Topic: topic}, When: delay.After(0)}
	}
	client, err := delay.NewClient(f.rdb, "orders", delay.WithPrefix(f.queue.Keys().Prefix))
	require.NoError(t, err)
	_, err = client.ScheduleBatch(t.Context(), requests)
	require.NoError(t, err)
	_, err = got.NextMsg(commandTimeout)
	require.NoError(t, err)

	write(plain, plain+", rate: {messages: 0}, late: {after: 1h, then: dead}", "format: json", "format: json, level: debug")
	p.signal(syscall.SIGHUP)
	line := p.await("configuration reloaded")
	for _, key := range []string{"queues.orders.rate.messages", "queues.orders.late.after", "queues.orders.late.then", "log.level"} {
		assert.Contains(t, line, `"`+key+`"`)
	}
	deadline := time.Now().Add(commandTimeout) // At the old rate it would take two minutes.
	for range len(requests) - 1 {
		_, err = got.NextMsg(time.Until(deadline))
		require.NoError(t, err, "the rate has not changed")
	}
	f.ok("schedule", "--topic", topic, "--at", time.Now().Add(-2*time.Hour).UTC().Format(time.RFC3339), "--id", "late", "x")
	require.Eventually(t, func() bool { return f.run("dead show", "late").code == exitDone }, commandTimeout, 50*time.Millisecond)
	assert.Contains(t, page(t, addr, "/metrics"), `delaybridge_config_reloads_total{result="success"} 1`)

	write(plain, plain+", rate: {messages: 7}, bogus: 1")
	p.signal(syscall.SIGHUP)
	assert.Contains(t, p.await("not reloaded"), "bogus")
	require.NoError(t, os.Rename(f.file, f.file+".gone"))
	p.signal(syscall.SIGHUP)
	assert.Contains(t, p.await("not reloaded"), "no such file")
	write(plain, plain+", rate: {messages: 7}", "prefix:", "drain_timeout: 7s\nprefix:")
	p.signal(syscall.SIGHUP)
	line = p.await("not reloaded")
	assert.Contains(t, line, "needs a restart: drain_timeout")
	assert.NotContains(t, line, "rate.messages", "what could have changed is not named")
	told := page(t, addr, "/metrics")
	assert.Contains(t, told, `delaybridge_config_reloads_total{result="failure"} 3`)
	assert.NotContains(t, told, "delaybridge_rate_limit{", "nothing is half applied")

	f.ok("schedule", "--topic", topic, "--in", "0s", "--id", "on", "x")
	_, err = got.NextMsg(commandTimeout)
	require.NoError(t, err)
	p.signal(syscall.SIGTERM)
	p.signal(syscall.SIGHUP) // It is no second signal.
	assert.Equal(t, exitDone, p.wait(), p.output())
}
