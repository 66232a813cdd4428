package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

func rowsOf(from, n int, due time.Time) []store.Row {
	rows := make([]store.Row, n)
	for i := range rows {
		rows[i] = store.Row{Token: rowToken(from + i), Message: note(fmt.Sprint("row-", from+i), "b"), DueAt: due}
	}
	return rows
}

func putAll(t *testing.T, q *store.Queue, rows []store.Row, want store.Code) {
	t.Helper()
	for i, answer := range q.Rows().Put(t.Context(), rows) {
		require.NoError(t, answer.Err)
		require.Equal(t, want, answer.Code, rows[i].Message.ID)
	}
}

// publishAll claims and acknowledges what is due in all shards.
func publishAll(t *testing.T, q *store.Queue, number uint64) (published int) {
	t.Helper()
	layout, err := q.LoadLayout(t.Context())
	require.NoError(t, err)
	for shard := range layout.Polled() {
		claim, err := q.Shard(shard).Claim(t.Context(), message.ClaimRequest{
			Token: message.ClaimToken{Instance: "a", Number: number}, Max: 1000, Timeout: never, Lease: lease,
		})
		require.NoError(t, err)
		if len(claim.Messages) == 0 {
			continue
		}
		published += len(claim.Messages)
		stale, err := q.Shard(shard).Settle(t.Context(), settlement(claim, acked))
		require.NoError(t, err)
		require.False(t, stale)
	}
	return published
}

// rowsWork brings rows to a queue of six shards, ends them in all ways, and
// brings them again: after a change of the shards, if asked to.
func rowsWork(t *testing.T, rdb redis.UniversalClient, change func(*store.Queue)) *store.Queue {
	t.Helper()
	told := map[int]int{}
	q := storetest.New(t, rdb, 6).WithLedger(func(shard int) { told[shard]++ })
	t.Cleanup(func() { storetest.Remove(context.WithoutCancel(t.Context()), rdb, q.Name(), 16) })
	const each = 40
	published, waiting := rowsOf(0, each, rowDue), rowsOf(100, each, farAhead)
	moved, cancelled, never := rowsOf(200, each, farAhead), rowsOf(300, each, farAhead), rowsOf(400, each, farAhead)
	for _, rows := range [][]store.Row{published, waiting, moved, cancelled} {
		putAll(t, q, rows, store.Created)
	}
	require.Equal(t, each, publishAll(t, q, 1))
	change(q)

	for i := range each {
		id := func(rows []store.Row) string { return rows[i].Message.ID }
		answered(t, store.Done, q.Rows().RescheduleRow(t.Context(), store.Operation{ID: id(moved), Token: rowToken(500 + i), Target: moved[i].Token}, rowDue))
		answered(t, store.Done, q.Rows().CancelRow(t.Context(), store.Operation{ID: id(cancelled), Token: rowToken(600 + i), Target: cancelled[i].Token}))
		answered(t, store.NotFound, q.Rows().CancelRow(t.Context(), store.Operation{ID: id(never), Token: rowToken(700 + i), Target: never[i].Token}))
		answered(t, store.EndedPublished, q.Rows().CancelRow(t.Context(), store.Operation{ID: id(published), Token: rowToken(800 + i), Target: published[i].Token}))
	}
	change(q)
	putAll(t, q, published, store.EndedPublished)
	putAll(t, q, waiting, store.Mine)
	putAll(t, q, moved, store.Mine)
	putAll(t, q, cancelled, store.EndedCancelled)
	putAll(t, q, never, store.EndedCancelled)
	require.Equal(t, each, publishAll(t, q, 2))
	putAll(t, q, moved, store.EndedPublished)
	require.NotEmpty(t, told)

	layout, err := q.LoadLayout(t.Context())
	require.NoError(t, err)
	settled := map[string]bool{}
	for shard := range layout.Polled() {
		rows, err := q.Rows().Settled(t.Context(), shard, 1000)
		require.NoError(t, err)
		for _, row := range rows {
			require.Equal(t, store.FatePublished, row.What)
			settled[row.Token] = true
		}
		stats, err := inspect.NewAdmin(q).Stats(t.Context(), shard)
		require.NoError(t, err)
		require.EqualValues(t, len(rows), stats.Ledger)
	}
	require.Len(t, settled, 2*each)
	require.True(t, settled[published[0].Token] && settled[rowToken(500)])
	return q
}

func TestRows(t *testing.T) {
	t.Parallel()
	rowsWork(t, shared(t), func(*store.Queue) {})
}

func TestRowsOnCluster(t *testing.T) {
	t.Parallel()
	rowsWork(t, clustered(t, testenv.StartCluster(t)), func(*store.Queue) {})
}

// TestRowsAcrossLayouts changes the shards between what ended a message and the
// late writer, and lets the earlier layouts end when all rows have been told.
func TestRowsAcrossLayouts(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	sizes := []int{16, 4}
	q := rowsWork(t, rdb, func(q *store.Queue) {
		other := again(t, q.Name())
		_, err := other.Layouts().SetShards(t.Context(), sizes[0])
		require.NoError(t, err)
		_, err = q.LoadLayout(t.Context())
		require.NoError(t, err)
		sizes = sizes[1:]
	})
	require.Empty(t, sizes)
	putAll(t, q, rowsOf(100, 40, farAhead), store.Mine)
	for i := range 40 {
		require.Equal(t, store.Done, cancel(t, q, fmt.Sprint("row-", 100+i)))
	}
	require.Empty(t, whole(t, rdb, q.Name(), 16))

	keeper := layout.NewKeeper(q.Layouts(), 0)
	for range 20 {
		require.NoError(t, keeper.Step(t.Context()))
	}
	layout, err := q.LoadLayout(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int{6, 16}, layout.Earlier, "rows are to be told")
	for shard := range layout.Polled() {
		rows, err := q.Rows().Settled(t.Context(), shard, 1000)
		require.NoError(t, err)
		require.NoError(t, q.Rows().ForgetFates(t.Context(), shard, rows))
	}
	require.Eventually(t, func() bool {
		require.NoError(t, keeper.Step(t.Context()))
		layout, err = q.LoadLayout(t.Context())
		require.NoError(t, err)
		return len(layout.Earlier) == 0
	}, soon, 5*time.Millisecond)
	require.Equal(t, 4, layout.Polled())
}
