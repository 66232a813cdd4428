package store_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// TestSettleManyTags: a batch with many tags is settled in parts.
func TestSettleManyTags(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	tags := make([]string, message.MaxTags)
	for i := range tags {
		tags[i] = fmt.Sprint("tag-", i)
	}
	for i := range 100 {
		tag(t, q, note(fmt.Sprint("m-", i), ""), past(), tags...)
	}
	b := newBridge(t, q)
	s := settlement(b.claim(store.MaxBatch), acked)
	require.Len(t, store.Parts(s, false), 4)
	stale, err := q.Shard(0).Settle(t.Context(), s)
	require.NoError(t, err)
	require.False(t, stale)
	shard, err := storetest.Dump(t.Context(), rdb, q.Name(), 0)
	require.NoError(t, err)
	require.NoError(t, shard.Check())
	require.Empty(t, shard.Tags)
	require.Equal(t, int64(100), shard.Counter("published"))
}
