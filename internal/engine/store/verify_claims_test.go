package store_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
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
		b := newBridge(t, q)
		create(t, q, "a", later())
		create(t, q, "b", later())
		due := sound(t, rdb, q).Due
		require.NoError(t, rdb.HSet(t.Context(), storetest.Key(q.Name(), 0, "claims"), "forged|1", packed).Err())
		require.ElementsMatch(t, want, breaches(t, q, true), packed)
		breaches(t, q, true) // A later run must not make more of what the first one did.

		b.reclaimAll(rdb)
		require.Equal(t, due, dump(t, rdb, q).Due, packed)
		create(t, q, "now", past())
		claim := b.claim(10)
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
	lost, b := &bridge{t: t, q: q, name: "lost"}, newBridge(t, q)
	create(t, q, "a", past())
	create(t, q, "bb", past())
	claims, token := storetest.Key(q.Name(), 0, "claims"), lost.claim(10).Token.String()
	packed := rdb.HGet(t.Context(), claims, token).Val()
	require.NoError(t, rdb.HSet(t.Context(), claims, token, packed[:len(packed)-1]).Err())
	require.NoError(t, rdb.Del(t.Context(), storetest.Key(q.Name(), 0, "holder")).Err())
	_, ok, err := q.Producer().Get(t.Context(), "bb", "")
	require.NoError(t, err)
	require.True(t, ok)

	b.reclaimAll(rdb)
	claim := b.claim(10)
	require.Len(t, claim.Messages, 1)
	require.Equal(t, "a", claim.Messages[0].ID)
	b.settle(claim, acked)
	require.Equal(t, []string{"nowhere bb, mended"}, breaches(t, q, true))
	sound(t, rdb, q)
}

// reclaimAll takes the shard when all deadlines have passed, and reclaims what there is.
func (b *bridge) reclaimAll(rdb redis.UniversalClient) {
	b.t.Helper()
	deadlines := storetest.Key(b.q.Name(), 0, "deadlines")
	for _, token := range rdb.ZRange(b.t.Context(), deadlines, 0, -1).Val() {
		require.NoError(b.t, rdb.ZAdd(b.t.Context(), deadlines, redisZ(token, 1)).Err())
	}
	_, err := b.q.Shard(0).Claim(b.t.Context(), b.request(0))
	require.NoError(b.t, err)
	for more := true; more; {
		_, more, err = b.q.Shard(0).Reclaim(b.t.Context(), message.Reclaim{Instance: b.name})
		require.NoError(b.t, err)
	}
}
