package command

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	f := setupWith(t, 2, "nats://127.0.0.1:1", "")
	assert.Equal(t, exitFailed, f.run("pause").code, "nobody has made the queue")
	f.ok("schedule", "--topic", "t", "--in", "0s", "--id", "due", "x")
	f.ok("schedule", "--topic", "t", "--in", "1h", "--id", "later", "x")

	assert.Equal(t, "queue orders was not paused\n", f.ok("resume").stdout)
	first := f.ok("pause", "-o", "json").object(t)
	assert.Equal(t, []any{"orders", "", true, 2.0, 1.0, 0.0}, []any{
		first["queue"], first["topic"], first["paused"], first["waiting"], first["due"], first["in_flight"],
	})
	require.NotEmpty(t, first["since"])
	assert.Equal(t, first["since"], f.ok("pause", "-o", "json").object(t)["since"], "again changes nothing")
	assert.Regexp(t, `^topic t of queue orders is paused since .*: 2 messages wait in the queue, 1 of them due, 0 of the topic parked, 0 in flight\n$`,
		f.ok("pause", "--topic", "t").stdout)
	shards := f.ok("shards list").stdout
	assert.Contains(t, shards, "queue orders is paused since ")
	assert.Contains(t, shards, "topic t of queue orders is paused since ")
	route := f.ok("shards list", "-o", "json").objects(t)[0]["routes"].([]any)[0].(map[string]any)
	assert.Equal(t, []any{"", "paused", first["since"]}, []any{route["route"], route["reason"], route["since"]})

	assert.Equal(t, "cancelled later\n", f.ok("cancel", "--id", "later").stdout)
	assert.Regexp(t, `^queue orders is resumed, it was paused since .*: 1 message waits in the queue, 1 of them due\n$`, f.ok("resume").stdout)
	assert.Regexp(t, `^topic t of queue orders is resumed`, f.ok("resume", "--topic", "t").stdout)
	assert.NotContains(t, f.ok("shards list").stdout, "paused")

	bad := f.run("pause", "--topic", "a b")
	assert.Equal(t, exitUsage, bad.code)
	assert.Contains(t, bad.stderr, `topic "a b"`)
}
