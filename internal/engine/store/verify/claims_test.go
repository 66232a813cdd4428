package verify_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// TestVerifyTrustsNoForgedClaim has a claim that no bridge has made, and that names what
// waits for later. After a repair, and after all deadlines have passed, that waits where it
// did (I2), and the shard works.
func TestVerifyTrustsNoForgedClaim(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	for packed, want := range map[string][]string{
		"garbage":                  {"no_deadline forged|1", "unreadable forged|1"},
		"1:1:agarbage":             {"no_deadline forged|1", "unreadable forged|1", "waits_claimed a"},
		"1:1:a1:1:b9:":             {"no_deadline forged|1", "unreadable forged|1", "waits_claimed a", "waits_claimed b"},
		"1:1:a9:1:b":               {"no_deadline forged|1", "unreadable forged|1", "waits_claimed a"},
		"1:9999999999999:agarbage": {"no_deadline forged|1", "unreadable forged|1", "waits_claimed a"},
		"1:99999999999999999999:a": {"no_deadline forged|1", "unreadable forged|1"},
		// All of it can be read: it is reclaimed in the end, and puts nothing over what waits.
		"1:1:a":             {"no_deadline forged|1, mended", "waits_claimed a"},
		"1:9999999999999:a": {"no_deadline forged|1, mended", "waits_claimed a"},
	} {
		q := storetest.New(t, rdb, 1)
		b := storetest.NewBridge(t, q)
		storetest.Create(t, q, "a", storetest.Later())
		storetest.Create(t, q, "b", storetest.Later())
		due := storetest.Sound(t, rdb, q).Due
		require.NoError(t, rdb.HSet(t.Context(), storetest.Key(q.Name(), 0, "claims"), "forged|1", packed).Err())
		require.ElementsMatch(t, want, breaches(t, q, true), packed)
		breaches(t, q, true) // A later run must not make more of what the first one did.

		reclaimAll(b, rdb)
		dump, err := storetest.Dump(t.Context(), rdb, q.Name(), 0)
		require.NoError(t, err)
		require.Equal(t, due, dump.Due, packed)
		storetest.Create(t, q, "now", storetest.Past())
		claim := b.Claim(10)
		require.Len(t, claim.Messages, 1, packed)
		require.Equal(t, "now", claim.Messages[0].ID)
	}
}

// TestUnreadableClaimStopsNoShard has a claim that was spoilt under its deadline: its shard
// works on, what can be read of it comes back, and verify finds the rest.
func TestUnreadableClaimStopsNoShard(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	lost, b := storetest.NewBridge(t, q), storetest.NewBridge(t, q)
	lost.Instance = "lost"
	storetest.Create(t, q, "a", storetest.Past())
	storetest.Create(t, q, "bb", storetest.Past())
	claims, token := storetest.Key(q.Name(), 0, "claims"), lost.Claim(10).Token.String()
	packed := rdb.HGet(t.Context(), claims, token).Val()
	require.NoError(t, rdb.HSet(t.Context(), claims, token, packed[:len(packed)-1]).Err())
	require.NoError(t, rdb.Del(t.Context(), storetest.Key(q.Name(), 0, "holder")).Err())
	_, ok, err := inspect.Get(t.Context(), q, "bb", "")
	require.NoError(t, err)
	require.True(t, ok)

	reclaimAll(b, rdb)
	claim := b.Claim(10)
	require.Len(t, claim.Messages, 1)
	require.Equal(t, "a", claim.Messages[0].ID)
	b.Settle(claim, storetest.Acked)
	require.Equal(t, []string{"nowhere bb, mended"}, breaches(t, q, true))
	storetest.Sound(t, rdb, q)
}

// reclaimAll takes the shard when all deadlines have passed, and reclaims what there is.
func reclaimAll(b *storetest.Bridge, rdb redis.UniversalClient) {
	b.Helper()
	deadlines := storetest.Key(b.Queue.Name(), 0, "deadlines")
	for _, token := range rdb.ZRange(b.Context(), deadlines, 0, -1).Val() {
		require.NoError(b, rdb.ZAdd(b.Context(), deadlines, redis.Z{Member: token, Score: 1}).Err())
	}
	_, err := b.Queue.Shard(0).Claim(b.Context(), b.Request(0))
	require.NoError(b, err)
	for more := true; more; {
		_, more, err = b.Queue.Shard(0).Reclaim(b.Context(), message.Reclaim{Instance: b.Instance})
		require.NoError(b, err)
	}
}
