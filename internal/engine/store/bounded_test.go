package store_test

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// TestBoundedScripts drains large messages: no script may block Redis for long.
func TestBoundedScripts(t *testing.T) {
	if testing.Short() {
		t.Skip("needs half a gigabyte")
	}
	const large = 900_000
	for name, sizes := range map[string][]int{
		"large":            {0, 500},
		"small then large": {300, 200},
	} {
		t.Run(name, func(t *testing.T) {
			rdb := connect(t, testenvPrivate(t))
			// How long a call takes is the machine's affair, not the scripts'.
			q := store.NewWithTimeout(rdb, storetest.Prefix, storetest.New(t, rdb, 1).Name(), soon)
			_, err := q.LoadLayout(t.Context())
			require.NoError(t, err)
			scheduleMany(t, q, "a", sizes[0], []byte("small"))
			for i := range sizes[1] { // Each has the time of a call for itself.
				scheduleMany(t, q, fmt.Sprint("b", i), 1, bytes.Repeat([]byte("x"), large))
			}
			b := newBridge(t, q)
			seen := 0
			began := busy(t, rdb)
			var took []time.Duration
			for before := began; ; {
				claim := b.claim(500)
				if len(claim.Messages) == 0 {
					break
				}
				size := 0
				for _, m := range claim.Messages {
					require.NoError(t, m.Err)
					size += len(m.Body)
				}
				require.True(t, size <= store.MaxBatchBytes || len(claim.Messages) == 1, "%d bytes", size)
				seen += len(claim.Messages)
				require.Equal(t, seen < sizes[0]+sizes[1], claim.More, "more after %d", seen)
				b.settle(claim, acked)
				now := busy(t, rdb)
				took, before = append(took, now-before), now
			}
			require.Equal(t, sizes[0]+sizes[1], seen)
			slices.Sort(took) // Where the machine itself is slow now and then, that is counted, too.
			require.Less(t, took[len(took)/2], 20*time.Millisecond, "a claim and its settlement: %v", took)
			perScript := busy(t, rdb) / time.Duration(scriptCalls(t, rdb))
			t.Logf("%v a script", perScript)
			require.Less(t, perScript, 20*time.Millisecond, "on average")
		})
	}
}

// TestBoundedBatches schedules more than one script may handle.
func TestBoundedBatches(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 2)
	const n = 2*store.MaxBatch + 500
	scheduleMany(t, q, "m", n, []byte("x"))
	var left int64
	for shard := range 2 {
		stats, err := inspect.NewAdmin(q).Stats(t.Context(), shard)
		require.NoError(t, err)
		left += stats.Waiting
		claim, err := q.Shard(shard).Claim(t.Context(), message.ClaimRequest{
			Token: message.ClaimToken{Instance: "a", Number: 1}, Max: 1 << 20, Timeout: never, Lease: lease,
		})
		require.NoError(t, err)
		require.Len(t, claim.Messages, store.MaxBatch)
		require.True(t, claim.More)
		stale, err := q.Shard(shard).Settle(t.Context(), settlement(claim, buried))
		require.NoError(t, err)
		require.False(t, stale)
	}
	require.EqualValues(t, n, left)
	var members []string
	require.NoError(t, inspect.NewAdmin(q).DeadLetters(t.Context(), func(letter message.DeadLetter) bool {
		require.NoError(t, letter.Err)
		members = append(members, letter.Member)
		return true
	}))
	require.Len(t, members, 2*store.MaxBatch)
	codes, err := inspect.NewAdmin(q).Redrive(t.Context(), members[:store.MaxBatch])
	require.NoError(t, err)
	require.NotContains(t, codes, store.NotFound)
	codes, err = inspect.NewAdmin(q).Purge(t.Context(), members)
	require.NoError(t, err)
	require.Contains(t, codes[:store.MaxBatch], store.NotFound)
	require.NotContains(t, codes[store.MaxBatch:], store.NotFound)
	for shard := range 2 {
		s, err := storetest.Dump(t.Context(), rdb, q.Name(), shard)
		require.NoError(t, err)
		require.NoError(t, s.Check())
	}
}

// busy is how long the server's main thread has worked: what others on the
// machine take from it is not counted.
func busy(t testing.TB, rdb *redis.Client) (sum time.Duration) {
	t.Helper()
	cpu := rdb.InfoMap(t.Context(), "cpu").Val()["CPU"]
	for _, part := range []string{"user", "sys"} {
		seconds, err := strconv.ParseFloat(cpu["used_cpu_"+part+"_main_thread"], 64)
		require.NoError(t, err)
		sum += time.Duration(seconds * float64(time.Second))
	}
	return sum
}
