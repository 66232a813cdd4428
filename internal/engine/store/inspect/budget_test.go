package inspect_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// TestBudget: beyond its budget a queue takes no message, and everything else goes on; it
// takes them again when there is room, or no budget.
func TestBudget(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 2)
	body := strings.Repeat("x", 1000)
	add := func(id string, replace bool) error {
		requests := []store.Request{{Message: storetest.Note(id, body), When: storetest.Past()}}
		return q.Producer().Schedule(t.Context(), requests, replace, store.Durability{})[0].Err
	}
	limit := func(budget int64) int64 {
		used, err := inspect.NewAdmin(q).Limit(t.Context(), budget)
		require.NoError(t, err)
		return used
	}
	require.NoError(t, add("first", false))
	const budget = 200_000
	require.Less(t, limit(budget), int64(2_000))
	n := 0
	for refused := 0; refused < 10; {
		err := add(fmt.Sprint("m-", n), false)
		if n++; err == nil {
			continue
		}
		require.ErrorIs(t, err, store.ErrFull)
		require.ErrorContains(t, err, "budget")
		refused++
		limit(budget) // The room that is left is shared anew.
	}
	used := limit(budget)
	require.InDelta(t, budget, used, budget/20)
	measured, err := inspect.NewAdmin(q).Used(t.Context())
	require.NoError(t, err)
	require.InDelta(t, used, measured, budget/100)
	require.ErrorIs(t, add("first", true), store.ErrFull)
	require.Equal(t, store.Done, storetest.Cancel(t, q, "first"))
	require.Equal(t, store.Done, storetest.Reschedule(t, q, "m-0", storetest.Later()))
	for shard := range 2 {
		s, err := storetest.Dump(t.Context(), rdb, q.Name(), shard)
		require.NoError(t, err)
		require.NoError(t, s.Check())
		stats, err := inspect.NewAdmin(q).Stats(t.Context(), shard)
		require.NoError(t, err)
		require.NotContains(t, stats.Counters, "budget")
	}
	for limit(2 * budget); ; {
		err := add(fmt.Sprint("m-", n), false)
		if n++; err == nil {
			break
		}
		require.ErrorIs(t, err, store.ErrFull)
	}
	limit(0)
	for range 300 {
		require.NoError(t, add(fmt.Sprint("m-", n), false))
		n++
	}
}
