package sharding_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/sharding"
)

// TestSpread is even in each shard, and never changes.
func TestSpread(t *testing.T) {
	t.Parallel()
	const shards, slices, messages = 8, 10, 80_000
	var count [shards][slices]int
	for i := range messages {
		id := fmt.Sprint("order-", i)
		at := sharding.Spread("", id, 10*time.Minute)
		require.True(t, 0 <= at && at < 10*time.Minute && at%time.Millisecond == 0)
		count[sharding.Home("", id, shards)][at/time.Minute]++
	}
	for shard := range count {
		for _, n := range count[shard] {
			require.InDelta(t, messages/shards/slices, n, 200)
		}
	}
	require.NotEqual(t, sharding.Spread("a", "b", time.Hour), sharding.Spread("ab", "", time.Hour))
	require.Zero(t, sharding.Spread("", "x", 0))
	require.Zero(t, sharding.Spread("", "x", -time.Hour))
	require.Equal(t, 6*time.Minute+42476*time.Millisecond, sharding.Spread("order-42", "order-42/timeout", 10*time.Minute), "a release that changes it moves what is scheduled again")
}
