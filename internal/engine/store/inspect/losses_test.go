package inspect_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// TestLosses stand in the layout until somebody has acknowledged them: what two instances
// notice is one, a change of the layout keeps them, and there are not too many.
func TestLosses(t *testing.T) {
	t.Parallel()
	q := storetest.New(t, shared(t), 2)
	at := time.UnixMilli(1_700_000_000_000).UTC()
	record := func(l store.Loss) { require.NoError(t, q.Layouts().RecordLoss(t.Context(), l)) }
	record(store.Loss{ID: "shards:7", Kind: store.LostShards, Shards: []int{3}, At: at, Instance: "a"})
	record(store.Loss{ID: "shards:7", Kind: store.LostShards, Shards: []int{1, 3}, At: at.Add(time.Second), Instance: "b"})
	record(store.Loss{ID: "queue:x", Kind: store.LostQueue, At: at.Add(time.Minute), Instance: "a"})
	_, err := q.Layouts().SetShards(t.Context(), 3)
	require.NoError(t, err)
	want := []store.Loss{
		{ID: "shards:7", Kind: store.LostShards, Shards: []int{1, 3}, At: at, Instance: "a"},
		{ID: "queue:x", Kind: store.LostQueue, At: at.Add(time.Minute), Instance: "a"},
	}
	stats, err := inspect.NewAdmin(q).StatsOfAll(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, stats.Losses)
	require.WithinDuration(t, time.Now(), stats.MadeAt(), time.Minute)

	n, err := inspect.NewAdmin(q).Acknowledge(t.Context(), []string{"shards:7", "none"})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	left, err := inspect.NewAdmin(q).Losses(t.Context())
	require.NoError(t, err)
	require.Equal(t, want[1:], left)
	for i := range 2 * layout.MostLosses {
		record(store.Loss{ID: fmt.Sprint("layout:", i), Kind: store.LostLayout, At: at})
	}
	left, err = inspect.NewAdmin(q).Losses(t.Context())
	require.NoError(t, err)
	require.Len(t, left, layout.MostLosses)
}
