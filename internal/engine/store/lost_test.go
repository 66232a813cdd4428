package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// TestLostShardsAreTold tells shards that Redis has lost from those that were
// dropped and those that are not made yet.
func TestLostShardsAreTold(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 3)
	t.Cleanup(func() { storetest.Remove(context.WithoutCancel(t.Context()), rdb, q.Name(), 6) })
	meta := func(shard int) string { return storetest.Key(q.Name(), shard, "meta") }
	layoutKey := storetest.Prefix + ":" + q.Name() + ":layout"
	lost, err := q.Layouts().Repair(t.Context())
	require.NoError(t, err)
	require.Empty(t, lost)

	// A change has begun: its shards are not lost, and nobody is to poll them.
	next := layout.NextEpoch(rdb.HGet(t.Context(), layoutKey, "epoch").Val()) + "|6|3"
	require.NoError(t, rdb.HSet(t.Context(), layoutKey, "next", next).Err())
	layout, err := q.LoadLayout(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int{6, 3}, []int{layout.Polled(), layout.InUse()})
	lost, err = q.Layouts().Repair(t.Context())
	require.NoError(t, err)
	require.Empty(t, lost)
	require.Zero(t, rdb.Exists(t.Context(), meta(4)).Val())

	// The keeper makes the lost one again while it finishes the change.
	born, err := q.Rows().Born(t.Context())
	require.NoError(t, err)
	require.NoError(t, rdb.Del(t.Context(), meta(1)).Err())
	keeper := q.NewKeeper()
	require.Eventually(t, func() bool {
		require.NoError(t, keeper.Step(t.Context()))
		layout, err := q.LoadLayout(t.Context())
		return err == nil && layout.Shards == 6
	}, soon, 5*time.Millisecond)
	require.NoError(t, keeper.Step(t.Context()))
	now, err := q.Rows().Born(t.Context())
	require.NoError(t, err)
	require.Len(t, now, 6)
	require.Equal(t, []time.Time{born[0], born[2]}, []time.Time{now[0], now[2]})
	require.True(t, now[1].After(born[1]))
	require.NoError(t, rdb.Del(t.Context(), meta(0), meta(5)).Err())
	lost, err = q.Layouts().Repair(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int{0, 5}, lost)
	after, err := q.LoadLayout(t.Context())
	require.NoError(t, err)
	require.True(t, after.SameLife(layout))
	require.Equal(t, after.Epoch, rdb.HGet(t.Context(), meta(5), "epoch").Val())
	require.NoError(t, rdb.Del(t.Context(), layoutKey).Err())
	_, err = q.Layouts().Repair(t.Context())
	require.ErrorIs(t, err, store.ErrNoLayout)
}

// TestDroppedShardAnswers lets a poller that does not know yet that its shard
// was dropped hear so, and give it up: Redis answers, and keeps nothing.
func TestDroppedShardAnswers(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 2)
	claim, err := q.Shard(7).Claim(t.Context(), message.ClaimRequest{
		Token: message.ClaimToken{Instance: "a", Number: 1}, Max: 1, Timeout: never, Lease: lease,
	})
	require.NoError(t, err)
	require.Equal(t, message.ClaimNoLayout, claim.State)
	require.NoError(t, q.Shard(7).HandOver(t.Context(), "a"))
	stats, err := inspect.NewAdmin(q).Stats(t.Context(), 7)
	require.NoError(t, err)
	require.Empty(t, stats.Holder)
	require.Zero(t, rdb.Exists(t.Context(), storetest.Key(q.Name(), 7, "holder"), storetest.Key(q.Name(), 7, "meta")).Val())
	for _, shard := range []int{-1, store.MaxShards} {
		require.Error(t, q.Shard(shard).HandOver(t.Context(), "a"))
	}
}
