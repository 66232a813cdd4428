package inspect_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

func TestCounters(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 3)
	layout, err := q.LoadLayout(t.Context())
	require.NoError(t, err)
	meta := func(shard int) string { return storetest.Prefix + ":{" + q.Name() + fmt.Sprint(":", shard) + "}:meta" }
	require.NoError(t, rdb.HSet(t.Context(), meta(1), "scheduled", 7, "published", 9).Err())
	require.NoError(t, rdb.Del(t.Context(), meta(2)).Err())
	counters, err := inspect.NewAdmin(q).Counters(t.Context(), []string{"scheduled", "cancelled"})
	require.NoError(t, err)
	require.Contains(t, layout.Epoch, "-"+counters.Life+"-")
	require.Equal(t, []map[string]int64{{"scheduled": 0, "cancelled": 0}, {"scheduled": 7, "cancelled": 0}, nil}, counters.Shards)

	_, err = inspect.NewAdmin(store.New(rdb, "nobody", "made-it")).Counters(t.Context(), []string{"scheduled"})
	require.ErrorIs(t, err, store.ErrNoLayout)
}
