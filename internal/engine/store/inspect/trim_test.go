package inspect_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// TestTrimDead purges the oldest over all shards, in steps, and nothing within the limits.
func TestTrimDead(t *testing.T) {
	t.Parallel()
	const letters = 700
	for name, c := range map[string]struct {
		limits inspect.DeadLimits
		left   int // the youngest
	}{
		"none":        {inspect.DeadLimits{}, letters},
		"max":         {inspect.DeadLimits{Max: 30}, 30},
		"max, enough": {inspect.DeadLimits{Max: letters}, letters},
		"keep":        {inspect.DeadLimits{Keep: 100*time.Hour + time.Minute}, 101},
		"both":        {inspect.DeadLimits{Keep: 200*time.Hour + time.Minute, Max: 50}, 50},
		"all":         {inspect.DeadLimits{Keep: time.Millisecond}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := shared(t)
			q := storetest.New(t, rdb, 3)
			b := storetest.NewBridge(t, q)
			for i := range letters {
				storetest.Create(t, q, fmt.Sprint("m", i), storetest.Past())
			}
			for shard := range 3 {
				for {
					request := b.Request(store.MaxBatch)
					claim, err := q.Shard(shard).Claim(t.Context(), request)
					require.NoError(t, err)
					if len(claim.Messages) == 0 {
						break
					}
					_, err = q.Shard(shard).Settle(t.Context(), storetest.Settlement(claim, storetest.Buried))
					require.NoError(t, err)
				}
			}
			died(t, rdb, q, letters)
			purged := 0
			for more := true; more; {
				n, again, err := inspect.NewAdmin(q).TrimDead(t.Context(), c.limits)
				require.NoError(t, err)
				require.LessOrEqual(t, n, 1000)
				purged, more = purged+n, again
			}
			require.Equal(t, letters-c.left, purged)
			var ids []string
			require.NoError(t, inspect.NewAdmin(q).DeadLetters(t.Context(), func(l message.DeadLetter) bool { ids = append(ids, l.ID); return true }))
			require.Len(t, ids, c.left)
			for i := range c.left {
				require.True(t, slices.Contains(ids, fmt.Sprint("m", i)), "m%d is one of the youngest", i)
			}
		})
	}
}

// died makes the i-th message have died i hours ago.
func died(t *testing.T, rdb redis.UniversalClient, q *store.Queue, letters int) {
	t.Helper()
	now := time.Now()
	for shard := range 3 {
		for i := range letters {
			at := float64(now.Add(-time.Duration(i) * time.Hour).UnixMilli())
			require.NoError(t, rdb.ZAddXX(t.Context(), storetest.Key(q.Name(), shard, "dead"), redis.Z{Score: at, Member: fmt.Sprint("m", i)}).Err())
		}
	}
}
