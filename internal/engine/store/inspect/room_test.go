package inspect_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// TestRooms: what is told of them is known for a minute, in a full Redis too, and is in
// nobody's way.
func TestRooms(t *testing.T) {
	t.Parallel()
	rdb := storetest.Connect(t, testenv.StartRedis(t).URL())
	q := storetest.New(t, rdb, 2)
	known := func() inspect.Rooms {
		t.Helper()
		rooms, err := inspect.NewAdmin(q).Rooms(t.Context())
		require.NoError(t, err)
		return rooms
	}
	require.Empty(t, known())
	want := inspect.Rooms{Budget: &inspect.Room{Used: 600, Limit: 1000, FullAt: time.UnixMilli(1_700_000_000_123).UTC()}, Redis: &inspect.Room{Used: 7, Limit: 1 << 40}}
	require.NoError(t, inspect.NewAdmin(q).TellRooms(t.Context(), want))
	require.Equal(t, want, known())

	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	want.Redis = &inspect.Room{Used: 7, Limit: 1}
	require.NoError(t, inspect.NewAdmin(q).TellRooms(t.Context(), want))
	require.Equal(t, want, known())
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())

	_, err := inspect.NewAdmin(q).Limit(t.Context(), 1_000_000)
	require.NoError(t, err)
	require.Equal(t, want, known(), "a budget stands beside it")
	stats, err := inspect.NewAdmin(q).Stats(t.Context(), 0)
	require.NoError(t, err)
	require.NotContains(t, stats.Counters, "room")

	meta := q.Keys().Shard(0).Meta
	require.NoError(t, rdb.HSet(t.Context(), meta, "room", `{"at": "2001-01-01T00:00:00Z", "budget": {"used": 1, "limit": 2}}`).Err())
	require.Empty(t, known(), "long ago")
	require.NoError(t, rdb.HSet(t.Context(), meta, "room", "x").Err())
	require.Empty(t, known(), "of another version")
	require.NoError(t, rdb.Del(t.Context(), meta).Err())
	require.NoError(t, inspect.NewAdmin(q).TellRooms(t.Context(), want))
	require.Zero(t, rdb.Exists(t.Context(), meta).Val(), "what was lost is not made again by it")
}

// TestIsFull: also a little below the limit.
func TestIsFull(t *testing.T) {
	t.Parallel()
	for used, want := range map[int64]bool{0: false, 989: false, 990: true, 1000: true, 2000: true} {
		require.Equal(t, want, (&inspect.Room{Used: used, Limit: 1000}).IsFull(), used)
	}
}
