package command

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

func TestShardsList(t *testing.T) {
	t.Parallel()
	f := setupWith(t, 1, "nats://127.0.0.1:1", "")
	assert.Equal(t, exitFailed, f.run("shards list").code, "nobody has made the queue")
	f.bury("dead")
	f.ok("schedule", "--topic", "t", "--in", "0s", "--id", "due", "x")
	f.ok("schedule", "--topic", "t", "--in", "1h", "--id", "later", "x")

	shard := f.ok("shards list", "-o", "json").object(t)
	require.Len(t, shard, 14)
	assert.Equal(t, []any{"orders", 0.0, "test", 2.0, 1.0, 0.0, 1.0}, []any{
		shard["queue"], shard["shard"], shard["holder"], shard["waiting"], shard["due"], shard["in_flight"], shard["dead"],
	})
	assert.Positive(t, shard["oldest_due_age_s"])
	assert.NotEmpty(t, shard["epoch"])
	assert.NotEmpty(t, shard["next_due_at"])

	claims := f.claim()
	text := f.ok("shards list").stdout
	assert.Contains(t, text, "HOLDER")
	assert.Regexp(t, `(?m)^0 +test +1 +0 +0 +1 +1 +-$`, text)
	assert.Regexp(t, `(?m)^all +1 +0 +0 +1 +1 +-$`, text)
	assert.Contains(t, text, "queue orders has 1 shard in layout ")
	assert.NotContains(t, text, "ROUTE")

	_, err := f.queue.Shard(0).Settle(t.Context(), message.Settlement{
		Claim: claims[0], Verdicts: []message.Verdict{{Verb: message.VerbPark, Slot: 7}},
		Parks: []message.ParkedRoute{{Slot: 7, Route: "orders.eu", Reason: "full", Since: time.UnixMilli(1_790_000_000_000)}},
	})
	require.NoError(t, err)
	text = f.ok("shards list").stdout
	assert.Regexp(t, `(?m)^0 +test +2 +1 +0 +0 +1 +-$`, text)
	assert.Regexp(t, `(?m)^orders.eu +1 +full +2026-09-21T`, text)
	routes := f.ok("shards list", "-o", "json").object(t)["routes"]
	require.Len(t, routes, 1)
}

// TestShardsListOfAnUnconfirmedQueue says why nothing is published.
func TestShardsListOfAnUnconfirmedQueue(t *testing.T) {
	t.Parallel()
	f := setupWith(t, 2, "nats://127.0.0.1:1", "")
	f.ok("schedule", "--topic", "t", "--in", "1h", "x")
	assert.NotContains(t, f.ok("shards list").stdout, "published")
	config, err := os.ReadFile(f.file)
	require.NoError(t, err)
	durable := strings.Replace(string(config), "shards: 2", "shards: 2, durability: replicas, replicas: 9", 1)
	require.NoError(t, os.WriteFile(f.file, []byte(durable), 0o600))
	assert.Contains(t, f.ok("shards list").stdout, "nothing is published, durability is replicas: not confirmed: 0 of 9 replicas did")
	for _, shard := range f.ok("shards list", "-o", "json").objects(t) {
		assert.Contains(t, shard["unconfirmed"], "0 of 9 replicas")
	}
}

func TestShardsSet(t *testing.T) {
	t.Parallel()
	f := setupWith(t, 2, "nats://127.0.0.1:1", "")
	assert.Equal(t, exitFailed, f.run("shards set", "4").code, "nobody has made the queue")
	f.ok("schedule", "--topic", "t", "--in", "1h", "--id", "a", "x")
	f.ok("schedule", "--topic", "t", "--in", "1h", "--id", "b", "x")
	assert.Equal(t, exitUsage, f.run("shards set", "0").code)
	assert.Equal(t, exitUsage, f.run("shards set", "many").code)

	assert.Equal(t, "queue orders has 16 shards now, 2 before\n", f.ok("shards set", "16").stdout)
	assert.Equal(t, "queue orders has 16 shards already\n", f.ok("shards set", "16").stdout)
	assert.Len(t, f.ok("shards list", "-o", "json").objects(t), 16)
	assert.Contains(t, f.ok("shards list").stdout, "earlier layouts live")
	layout := f.ok("shards set", "1", "-o", "json").object(t)
	assert.Equal(t, []any{"orders", 1.0, []any{2.0, 16.0}}, []any{layout["queue"], layout["shards"], layout["earlier"]})
	assert.Contains(t, f.ok("shards list").stdout, "shards from 1 on hold")

	assert.Equal(t, "scheduled", f.ok("get", "--id", "a", "-o", "json").object(t)["state"])
	assert.Equal(t, exitRefused, f.run("schedule", "--topic", "t", "--in", "1h", "--id", "a", "x").code, "in its old home")
	assert.Equal(t, "cancelled a\n", f.ok("cancel", "--id", "a").stdout)
	assert.Equal(t, "scheduled", f.ok("reschedule", "--id", "b", "--in", "2h", "-o", "json").object(t)["state"])
}
