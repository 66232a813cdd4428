package command

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// TestQueuesCommands: what people see of declared queues, and which exit codes programs do.
func TestQueuesCommands(t *testing.T) {
	t.Parallel()
	a := newAgreement(t, "")
	queues := func(stdin string, args ...string) outcome {
		t.Helper()
		return bridge(t, stdin, append(append([]string{"queues"}, args...), "--url", a.server.URL)...)
	}
	assert.Equal(t, outcome{exitDone, "no queues are declared by the API\n", ""}, queues("", "list"))
	const team = "owner: ann\nqueues:\n  bills: {sink: events, late: {after: 1h, then: dead}}\n  refunds: {sink: events, owner: bob}\n"
	assert.Equal(t, outcome{exitDone, "created bills\ncreated refunds\n", ""}, queues(team, "apply", "-f", "-"))
	file := filepath.Join(t.TempDir(), "team.yaml")
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(team, "1h", "2h", 1)), 0o600))
	assert.Equal(t, outcome{exitDone, "changed bills\nunchanged refunds\n", ""}, queues("", "apply", "-f", file))
	objects := queues("", "apply", "-f", file, "-o", "json").objects(t)
	assert.Equal(t, []any{"unchanged", "unchanged"}, []any{objects[0]["status"], objects[1]["status"]})

	o := queues("", "list", "-o", "wide")
	require.Equal(t, exitDone, o.code, o.stderr)
	assert.Equal(t, []string{"NAME", "SINK", "OWNER", "STATE", "BY", "AT", "REVISION", "PROBLEMS"}, strings.Fields(o.stdout)[:8])
	assert.Regexp(t, `(?m)^bills +events +ann +pending +local +20`, o.stdout)
	o = queues("", "show", "bills")
	assert.Contains(t, o.stdout, "queue.late   {\"after\":\"2h\",\"then\":\"dead\"}\n")
	assert.Contains(t, o.stdout, "queue.owner  ann\n")

	for _, c := range []struct {
		stdin, args string
		code        int
		says        string
	}{
		{"queues: {bills: {sink: nowhere}}", "apply -f -", exitUsage, `bills: ` + a.server.URL + `/api/v1/declarations/bills answers 400 Bad Request: sink: "nowhere" is no sink`},
		{"queue: {}", "apply -f -", exitUsage, "line 1: queue: unknown key"},
		{"", "apply -f " + filepath.Join(t.TempDir(), "none.yaml"), exitUsage, "-f: open "},
		{"", "show none", exitRefused, "the queue none is not declared by the API"},
		{"", "delete none", exitRefused, "the queue none is not declared by the API"},
	} {
		o := queues(c.stdin, strings.Fields(c.args)...)
		assert.Equal(t, c.code, o.code, "%s: %+v", c.args, o)
		assert.Contains(t, o.stderr, c.says)
	}
	code, id := queues("queues: {bills: {sink: nowhere}}", "apply", "-f", "-", "-o", "json").errorOf(t)
	assert.Equal(t, []string{"invalid", "bills"}, []string{code, id})
	o = bridge(t, "", "queues", "list")
	assert.Equal(t, exitUsage, o.code)
	assert.Contains(t, o.stderr, "give --url")

	complete := func(words ...string) string {
		t.Helper()
		o := bridge(t, "", append([]string{"__complete", "--", "queues"}, words...)...)
		require.Equal(t, exitDone, o.code, o.stderr)
		return o.stdout
	}
	assert.Equal(t, "bills\nrefunds\n", complete("show", "--url", a.server.URL, ""))
	assert.Equal(t, "refunds\n", complete("delete", "--keep-messages", "--url="+a.server.URL, "r"))
	assert.Empty(t, complete("show", "--url", a.server.URL, "bills", ""), "it has one argument")
	assert.Empty(t, complete("show", "--url", "http://127.0.0.1:1", ""), "no bridge answers")
	assert.Empty(t, complete("show", ""), "there is none to ask")

	assert.Equal(t, outcome{exitDone, "deleted refunds\n", ""}, queues("", "delete", "refunds"))
	assert.Equal(t, "deleted", queues("", "delete", "bills", "-o", "json").object(t)["status"])
}

// TestDeclaredQueues: a queue that a team declares is there on all bridges while they run, survives their restarts, and its messages survive
// its deletion.
func TestDeclaredQueues(t *testing.T) {
	t.Parallel()
	url, topic, addr := testenv.NATS(t), testenv.Name(t, "t"), freeAddr(t)
	f := setupWith(t, 2, url, addr)
	text, err := os.ReadFile(f.file)
	require.NoError(t, err)
	text = append(text, "queue_files: {api: {prefix: pay-, max_shards: 2}, teams: {files: ['teams/*.yaml']}}\n"...)
	require.NoError(t, os.WriteFile(f.file, text, 0o600))
	teams := filepath.Join(filepath.Dir(f.file), "teams")
	require.NoError(t, os.Mkdir(teams, 0o700))
	otherAddr := freeAddr(t)
	otherFile := filepath.Join(filepath.Dir(f.file), "other.yaml")
	require.NoError(t, os.WriteFile(otherFile, []byte(strings.Replace(string(text), addr, otherAddr, 1)), 0o600))
	got := subscribe(t, url, topic)
	p, other := start(t, os.Environ(), "run", "--config", f.file), start(t, os.Environ(), "run", "--config", otherFile)
	p.awaitPolling()
	other.awaitPolling()
	queues := func(stdin string, args ...string) outcome {
		t.Helper()
		return bridge(t, stdin, append(append([]string{"queues"}, args...), "--url", "http://"+addr)...)
	}
	schedule := func(id, in string) {
		t.Helper()
		o := bridge(t, "", "schedule", "--config", f.file, "--queue", "pay-bills", "--topic", topic, "--in", in, "--id", id, "x")
		require.Equal(t, exitDone, o.code, o.stderr)
	}

	owned := func(owner string) {
		t.Helper()
		require.Eventually(t, func() bool { // It drains first.
			return strings.Contains(page(t, addr, "/metrics"), fmt.Sprintf(`delaybridge_queue_info{owner=%q,queue="pay-bills"} 1`, owner))
		}, commandTimeout, 100*time.Millisecond)
	}
	const bills = "owner: payments\nqueues: {pay-bills: {sink: events}}"
	assert.Equal(t, outcome{exitDone, "created pay-bills\n", ""}, queues(bills, "apply", "-f", "-"))
	assert.Contains(t, p.await("configuration reloaded"), `"added":["pay-bills"],"removed":[],"restarted":[]`)
	assert.Contains(t, other.await("configuration reloaded"), `"added":["pay-bills"]`)
	assert.Contains(t, page(t, otherAddr, "/api/v1/queues/pay-bills"), `"owner":"payments"`)
	schedule("a", "0s")
	_, err = got.NextMsg(commandTimeout)
	require.NoError(t, err)
	schedule("b", "1h")
	assert.Contains(t, bridge(t, "", "stats", "--config", f.file, "--over", "0s", "-o", "wide").stdout, "pay-bills")

	o := queues("queues: {pay-bills: {sink: events, shards: 3}}", "apply", "-f", "-")
	assert.Contains(t, o.stderr, "shards: 3 is too large, queue_files.api.max_shards allows 2")
	o = queues("queues: {other: {sink: events}}", "apply", "-f", "-")
	assert.Contains(t, o.stderr, `the name must begin with "pay-", by queue_files.api.prefix`)

	// A file takes the name, and gives it back.
	require.NoError(t, os.WriteFile(filepath.Join(teams, "x.yaml"), []byte("queues: {pay-bills: {sink: events, owner: files}}"), 0o600))
	assert.Contains(t, p.await("queue file is wrong"), "api:pay-bills: queues.pay-bills: is declared in ")
	p.await("configuration reloaded")
	assert.Contains(t, queues("", "list", "-o", "wide").stdout, "is declared in ")
	assert.Contains(t, page(t, addr, "/metrics"), `delaybridge_queue_files_wrong 1`)
	owned("files")
	o = queues("queues: {pay-bills: {sink: events, owner: ann}}", "apply", "-f", "-")
	assert.Equal(t, exitRefused, o.code)
	assert.Contains(t, o.stderr, "teams/x.yaml declares the queue pay-bills")
	require.NoError(t, os.Remove(filepath.Join(teams, "x.yaml")))
	p.await("configuration reloaded")
	owned("payments")

	p.signal(syscall.SIGTERM)
	require.Equal(t, exitDone, p.wait(), p.output())
	p = start(t, os.Environ(), "run", "--config", f.file)
	p.await(`"added":["pay-bills"]`)

	o = queues("", "delete", "pay-bills")
	assert.Equal(t, exitRefused, o.code)
	assert.Contains(t, o.stderr, "the queue has messages: 1 wait, 0 are in flight, 0 are dead")
	assert.Equal(t, outcome{exitDone, "deleted pay-bills; left in Redis: 1 message\n", ""}, queues("", "delete", "pay-bills", "--keep-messages"))
	assert.Contains(t, p.await("queue removed"), `"waiting":1`)
	other.await("queue removed")
	assert.Equal(t, exitUsage, bridge(t, "", "stats", "--config", f.file, "pay-bills").code)
	assert.Equal(t, outcome{exitDone, "created pay-bills\n", ""}, queues(bills, "apply", "-f", "-"))
	p.await(`"added":["pay-bills"]`)
	o = bridge(t, "", "get", "--config", f.file, "--queue", "pay-bills", "--id", "b")
	assert.Contains(t, o.stdout, "scheduled", o.stderr)

	declaredKey := strings.TrimSuffix(f.queue.Keys().Layout(), "orders:layout") + "{queues}"
	// Redis loses all: the queue stays, and is declared again.
	require.NoError(t, f.rdb.Del(t.Context(), declaredKey).Err())
	require.Eventually(t, func() bool {
		return f.rdb.Exists(t.Context(), declaredKey).Val() == 1
	}, commandTimeout, 100*time.Millisecond)
	assert.Contains(t, fmt.Sprint(p.output(), other.output()), "redis has lost declarations of queues")
	assert.Contains(t, queues("", "list").stdout, "in force")
	assert.NotContains(t, page(t, addr, "/metrics"), `delaybridge_queue_files_wrong 1`)
	for _, running := range []*process{p, other} {
		running.signal(syscall.SIGTERM)
		assert.Equal(t, exitDone, running.wait(), running.output())
	}
}
