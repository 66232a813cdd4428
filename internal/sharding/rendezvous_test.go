package sharding_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/delaybridge/delaybridge/internal/sharding"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func instances(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("bridge-", i, "-01ARZ3NDEKTSV4RRFFQ69G5FAV")
	}
	return names
}

// TestOwnerIsOne covers each shard exactly once, whatever the order.
func TestOwnerIsOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		queue := rapid.String().Draw(t, "queue")
		names := rapid.SliceOfNDistinct(rapid.StringN(1, 20, -1), 1, 8, rapid.ID[string]).Draw(t, "instances")
		shards := rapid.IntRange(0, 64).Draw(t, "shards")
		mixed := slices.Clone(names)
		rand.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
		var all []int
		for _, name := range names {
			owned := sharding.Owned(queue, shards, name, names)
			require.Equal(t, owned, sharding.Owned(queue, shards, name, mixed))
			all = append(all, owned...)
		}
		slices.Sort(all)
		require.Len(t, all, shards)
		for shard, got := range all {
			require.Equal(t, shard, got)
		}
		require.Contains(t, names, sharding.QueueOwner(queue, mixed))
	})
}

func TestOwnerOfNothing(t *testing.T) {
	t.Parallel()
	require.Empty(t, sharding.Owner("orders", 0, nil))
	require.Empty(t, sharding.Owned("orders", 8, "me", nil))
	require.Empty(t, sharding.Owned("orders", 8, "stranger", instances(3)))
	require.Empty(t, sharding.QueueOwner("orders", nil))
	require.Equal(t, "me", sharding.QueueOwner("orders", []string{"me"}))
}

// TestJoinTakesOnlyItsShare moves shards to the new instance and to no other;
// read backwards, the shards of one that leaves go to the others.
func TestJoinTakesOnlyItsShare(t *testing.T) {
	t.Parallel()
	const shards = 4096
	for n := 1; n < 10; n++ {
		before, after := instances(n), instances(n+1)
		moved := 0
		for shard := range shards {
			old, now := sharding.Owner("orders", shard, before), sharding.Owner("orders", shard, after)
			if old != now {
				require.Equal(t, after[n], now, "shard %d moves between old instances", shard)
				moved++
			}
		}
		require.InEpsilon(t, shards/(n+1), moved, 0.15)
	}
}

// TestOwnersAreBalanced spreads the shards of one queue, and of many small ones.
func TestOwnersAreBalanced(t *testing.T) {
	t.Parallel()
	names := instances(5)
	for _, spread := range []struct{ queues, shards int }{{1, 5000}, {5000, 1}, {300, 16}} {
		count := map[string]int{}
		for queue := range spread.queues {
			for shard := range spread.shards {
				count[sharding.Owner(fmt.Sprint("q", queue), shard, names)]++
			}
		}
		for _, name := range names {
			require.InEpsilon(t, spread.queues*spread.shards/len(names), count[name], 0.1, "%+v", spread)
		}
	}
}
