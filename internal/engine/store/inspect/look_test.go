package inspect_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// TestFind looks for an ID under every key and in every state.
func TestFind(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 3)
	const id = "*[a]?\\"
	var members []string
	for _, key := range []string{"", "k1", "k2", "k3", "k4"} {
		m := &message.Message{ID: id, Key: key, Topic: "t"}
		storetest.Answered(t, store.Created, q.Producer().Schedule(t.Context(), []store.Request{{Message: m, When: storetest.Past()}}, false, store.Durability{})[0])
		members = append(members, message.Member(id, key))
	}
	other := &message.Message{ID: "xxa?\\", Key: "k1", Topic: "t"}
	storetest.Answered(t, store.Created, q.Producer().Schedule(t.Context(), []store.Request{{Message: other, When: storetest.Past()}}, false, store.Durability{})[0])
	find := func() {
		t.Helper()
		found, err := inspect.Find(t.Context(), q, id, 10)
		require.NoError(t, err)
		require.ElementsMatch(t, members, found)
	}
	find() // They wait.
	verdict := storetest.Buried
	for shard := range 3 {
		claim, err := q.Shard(shard).Claim(t.Context(), message.ClaimRequest{
			Token: message.ClaimToken{Instance: "a", Number: 1}, Max: 10, Timeout: storetest.Never, Lease: storetest.Lease,
		})
		require.NoError(t, err)
		find() // Some are in flight.
		_, err = q.Shard(shard).Settle(t.Context(), storetest.Settlement(claim, verdict))
		require.NoError(t, err)
	}
	find() // All are dead.
	_, err := inspect.Find(t.Context(), q, id, 2)
	require.ErrorIs(t, err, inspect.ErrTooMany)
	found, err := inspect.Find(t.Context(), q, "nobody", 2)
	require.NoError(t, err)
	require.Empty(t, found)
}

// TestStats counts what a shard holds.
func TestStats(t *testing.T) {
	t.Parallel()
	q := storetest.New(t, shared(t), 1)
	b := storetest.NewBridge(t, q)
	empty, err := inspect.NewAdmin(q).Stats(t.Context(), 0)
	require.NoError(t, err)
	require.True(t, empty.NextDue.IsZero())
	require.Zero(t, empty.OldestDueAge)
	storetest.Create(t, q, "future", storetest.Later())
	storetest.Create(t, q, "flying", storetest.Past())
	b.Claim(1)
	storetest.Create(t, q, "due", storetest.Past())
	stats, err := inspect.NewAdmin(q).Stats(t.Context(), 0)
	require.NoError(t, err)
	require.EqualValues(t, 2, stats.Waiting)
	require.EqualValues(t, 1, stats.Due)
	require.EqualValues(t, 1, stats.InFlight)
	require.EqualValues(t, 1, stats.Claims)
	require.Equal(t, b.Instance, stats.Holder)
	require.Equal(t, storetest.Past().Ms, stats.NextDue.UnixMilli())
	require.Greater(t, stats.OldestDueAge, 24*time.Hour)
	require.EqualValues(t, 3, stats.Counters["scheduled"])
	_, err = inspect.NewAdmin(q).Stats(t.Context(), -1)
	require.Error(t, err, "no such shard")
}
