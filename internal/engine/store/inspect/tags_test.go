package inspect_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// TestListByTag: a listing by tag has what is in any state and any shard, each once, in
// the order of key and id, and the other filters narrow it.
func TestListByTag(t *testing.T) {
	t.Parallel()
	q := storetest.New(t, shared(t), 3)
	var want []string
	for i := range 50 {
		m := storetest.Note(fmt.Sprintf("m-%02d", i), "body")
		if m.Topic = fmt.Sprint("t-", i%2); i%4 == 0 {
			m.Key = "k"
		}
		storetest.Tag(t, q, m, storetest.Later(), []string{"sale", "other", "sal", "sale2"}[i%4], "all")
		if i%4 == 0 {
			want = append(want, m.ID)
		}
	}
	for _, limit := range []int{1, 3, 100} {
		list := storetest.ListAll(t, q, inspect.ListRequest{Limit: limit, Filter: inspect.Filter{Tag: "sale"}}, nil)
		require.Equal(t, want, listedIDs(list))
		require.Equal(t, []string{"all", "sale"}, list[0].Found.Tags())
		require.WithinDuration(t, time.Now().Add(storetest.Never), list[0].Found.DueAt, time.Minute)
	}
	all := storetest.ListAll(t, q, inspect.ListRequest{Limit: 7, Filter: inspect.Filter{Tag: "all"}}, nil)
	require.Len(t, all, 50)
	members := make([]string, len(all))
	for i, m := range all {
		members[i] = message.Member(m.Found.ID, m.Found.Key)
	}
	require.True(t, slices.IsSorted(members))
	count := func(f inspect.Filter) int {
		return len(storetest.ListAll(t, q, inspect.ListRequest{Limit: 7, Filter: f}, nil))
	}
	require.Equal(t, 25, count(inspect.Filter{Tag: "all", Topic: "t-1"}))
	require.Equal(t, 13, count(inspect.Filter{Tag: "all", Key: "k"}))
	require.Equal(t, 10, count(inspect.Filter{Tag: "all", IDPrefix: "m-0"}))
	require.Zero(t, count(inspect.Filter{Tag: "all", State: inspect.StateDead}))
	require.Zero(t, count(inspect.Filter{Tag: "al"}))
}

// TestListByTagStates: wherever a message with a tag is, it is listed with its state
// and due time, until it has ended.
func TestListByTagStates(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	b := storetest.NewBridge(t, q)
	storetest.Tag(t, q, storetest.Note("1-dead", ""), storetest.Past(), "a")
	b.Settle(b.Claim(10), message.Verdict{Verb: message.VerbDeadLetter, Reason: "refused"})
	storetest.Tag(t, q, storetest.Note("2-parked", ""), storetest.Past(), "a")
	b.Park(7)
	storetest.Tag(t, q, storetest.Note("3-flies", ""), storetest.Past(), "a")
	claim := b.Claim(10)
	storetest.Tag(t, q, storetest.Note("4-waits", ""), storetest.Later(), "a")

	request := inspect.ListRequest{Limit: 2, Filter: inspect.Filter{Tag: "a"}}
	list := storetest.ListAll(t, q, request, nil)
	require.Len(t, list, 4)
	for i, state := range []inspect.State{inspect.StateDead, inspect.StateParked, inspect.StateInFlight, inspect.StateScheduled} {
		m := list[i]
		require.Equal(t, state, m.State, m.Found.ID)
		if state != inspect.StateScheduled {
			require.Equal(t, storetest.Past().Ms, m.Found.DueAt.UnixMilli(), m.Found.ID)
		}
		one := request
		one.State = state
		require.Equal(t, []string{m.Found.ID}, listedIDs(storetest.ListAll(t, q, one, nil)))
	}
	require.Equal(t, "refused", list[0].Found.Reason)

	b.Settle(claim, storetest.Acked)
	require.Equal(t, store.Done, storetest.Cancel(t, q, "4-waits"))
	_, err := inspect.NewAdmin(q).Purge(t.Context(), []string{"1-dead"})
	require.NoError(t, err)
	require.Equal(t, []string{"2-parked"}, listedIDs(storetest.ListAll(t, q, request, nil)))
	shard, err := storetest.Dump(t.Context(), rdb, q.Name(), 0)
	require.NoError(t, err)
	require.NoError(t, shard.Check())
}
