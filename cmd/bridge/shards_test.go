package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestShardsList(t *testing.T) {
	t.Parallel()
	f := setupWith(t, 1, "nats://127.0.0.1:1", "")
	assert.Equal(t, exitFailed, f.run("shards list").code, "nobody has made the queue")
	f.bury("dead")
	f.ok("schedule", "--topic", "t", "--in", "0s", "--id", "due", "x")
	f.ok("schedule", "--topic", "t", "--in", "1h", "--id", "later", "x")

	shard := f.ok("shards list", "-o", "json").object(t)
	require.Len(t, shard, 10)
	assert.Equal(t, []any{"orders", 0.0, "test", 2.0, 1.0, 0.0, 1.0}, []any{
		shard["queue"], shard["shard"], shard["holder"], shard["waiting"], shard["due"], shard["in_flight"], shard["dead"],
	})
	assert.Positive(t, shard["oldest_due_age"])
	assert.NotEmpty(t, shard["epoch"])
	assert.NotEmpty(t, shard["next_due_at"])

	f.claim()
	text := f.ok("shards list").stdout
	assert.Contains(t, text, "HOLDER")
	assert.Regexp(t, `(?m)^0 +test +1 +0 +1 +1 +-$`, text)
	assert.Regexp(t, `(?m)^all +1 +0 +1 +1 +-$`, text)
	assert.Contains(t, text, "queue orders has 1 shard in layout ")
}
