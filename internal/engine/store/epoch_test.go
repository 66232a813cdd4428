package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// TestEpoch wipes Redis under a client that knew the queue before.
func TestEpoch(t *testing.T) {
	t.Parallel()
	rdb := connect(t, testenvPrivate(t))
	old := storetest.New(t, rdb, 2)
	create(t, old, "x", later())
	before, err := old.Layout(t.Context())
	require.NoError(t, err)

	require.NoError(t, rdb.FlushAll(t.Context()).Err())
	answer := old.Producer().Schedule(t.Context(), requests(later(), "y"), false, store.Durability{})[0]
	require.ErrorIs(t, answer.Err, store.ErrNoLayout)

	// The bridge makes it anew, with other shards.
	bridge := store.New(rdb, storetest.Prefix, old.Name())
	after, err := bridge.Layouts().Ensure(t.Context(), storetest.Layout(3))
	require.NoError(t, err)
	require.NotEqual(t, before.Epoch, after.Epoch)
	require.Equal(t, 3, after.Shards)
	for verb, do := range everyVerb(t.Context(), old) {
		require.NoError(t, do(), verb)
	}
	known, err := old.Layout(t.Context())
	require.NoError(t, err)
	require.Equal(t, after.Epoch, known.Epoch)
	require.Equal(t, 3, known.Shards)
}

// TestWipedUnderBridge claims from a shard that is not there any more.
func TestWipedUnderBridge(t *testing.T) {
	t.Parallel()
	rdb := connect(t, testenvPrivate(t))
	q := storetest.New(t, rdb, 1)
	b := newBridge(t, q)
	create(t, q, "x", past())
	claim := b.claim(1)
	require.NoError(t, rdb.FlushAll(t.Context()).Err())
	gone, err := q.Shard(0).Claim(t.Context(), b.request(1))
	require.NoError(t, err)
	require.Equal(t, message.ClaimNoLayout, gone.State)
	require.Zero(t, rdb.DBSize(t.Context()).Val(), "a claim makes nothing")
	stale, err := q.Shard(0).Settle(t.Context(), settlement(claim, acked))
	require.NoError(t, err)
	require.True(t, stale)

	_, err = q.Layouts().Ensure(t.Context(), storetest.Layout(1))
	require.NoError(t, err)
	create(t, q, "x", past())
	b.finish(acked)
}

// TestShardWithoutMeta is a shard that nobody may write to, until somebody who
// knows the layout has made it again, under an epoch that nobody had before.
func TestShardWithoutMeta(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	for verb := range everyVerb(t.Context(), q) {
		before, err := q.LoadLayout(t.Context())
		require.NoError(t, err)
		meta := storetest.Key(q.Name(), 0, "meta")
		require.NoError(t, rdb.Del(t.Context(), meta).Err())
		stranger := store.New(rdb, storetest.Prefix, q.Name())
		require.NoError(t, everyVerb(t.Context(), stranger)[verb](), verb)
		after, err := q.LoadLayout(t.Context())
		require.NoError(t, err)
		require.NotEqual(t, before.Epoch, after.Epoch)
		require.True(t, before.SameLife(after))
		require.Equal(t, before.Shards, after.Shards)
		require.Equal(t, after.Epoch, rdb.HGet(t.Context(), meta, "epoch").Val(), verb)
	}
}

// TestEnsureLayout is asked again with another configuration.
func TestEnsureLayout(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 2)
	first, err := q.Layout(t.Context())
	require.NoError(t, err)
	second, err := store.New(rdb, storetest.Prefix, q.Name()).Layouts().Ensure(t.Context(),
		store.Layout{Shards: 5, Sink: message.Kafka, MaxMessage: 1000})
	require.NoError(t, err)
	require.Equal(t, first.Shards, second.Shards, "counts at creation only")
	require.Equal(t, first.Epoch, second.Epoch)
	require.Equal(t, message.Kafka, second.Sink)
	require.Equal(t, 1000, second.MaxMessage)
	loaded, err := store.New(rdb, storetest.Prefix, q.Name()).Layout(t.Context())
	require.NoError(t, err)
	require.Equal(t, second.Sink, loaded.Sink)
	require.Equal(t, second.MaxMessage, loaded.MaxMessage)
}
