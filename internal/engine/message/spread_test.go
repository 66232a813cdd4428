package message_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
)

// TestSpread is even in each shard, and never changes.
func TestSpread(t *testing.T) {
	t.Parallel()
	const shards, slices, messages = 8, 10, 80_000
	var count [shards][slices]int
	for i := range messages {
		id := fmt.Sprint("order-", i)
		at := message.Spread("", id, 10*time.Minute)
		require.True(t, 0 <= at && at < 10*time.Minute && at%time.Millisecond == 0)
		count[layout.Home("", id, shards)][at/time.Minute]++
	}
	for shard := range count {
		for _, n := range count[shard] {
			require.InDelta(t, messages/shards/slices, n, 200)
		}
	}
	require.NotEqual(t, message.Spread("a", "b", time.Hour), message.Spread("ab", "", time.Hour))
	require.Zero(t, message.Spread("", "x", 0))
	require.Zero(t, message.Spread("", "x", -time.Hour))
	require.Equal(t, 6*time.Minute+42476*time.Millisecond, message.Spread("order-42", "order-42/timeout", 10*time.Minute), "a release that changes it moves what is scheduled again")
}
