package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// tag schedules a message with tags.
func tag(t testing.TB, q *store.Queue, m *message.Message, when store.When, tags ...string) {
	t.Helper()
	m.Headers = must(message.WithTags(m.Headers, tags))
	answered(t, store.Created, q.Producer().Schedule(t.Context(), []store.Request{{Message: m, When: when}}, false, store.Durability{})[0])
}

// TestListByTag: a listing by tag has what is in any state and any shard, each once, in
// the order of key and id, and the other filters narrow it.
func TestListByTag(t *testing.T) {
	t.Parallel()
	q := storetest.New(t, shared(t), 3)
	var want []string
	for i := range 50 {
		m := note(fmt.Sprintf("m-%02d", i), "body")
		if m.Topic = fmt.Sprint("t-", i%2); i%4 == 0 {
			m.Key = "k"
		}
		tag(t, q, m, later(), []string{"sale", "other", "sal", "sale2"}[i%4], "all")
		if i%4 == 0 {
			want = append(want, m.ID)
		}
	}
	for _, limit := range []int{1, 3, 100} {
		list := listAll(t, q, store.ListRequest{Limit: limit, Filter: store.Filter{Tag: "sale"}}, nil)
		require.Equal(t, want, listedIDs(list))
		require.Equal(t, []string{"all", "sale"}, list[0].Found.Tags())
		require.WithinDuration(t, time.Now().Add(never), list[0].Found.DueAt, time.Minute)
	}
	all := listAll(t, q, store.ListRequest{Limit: 7, Filter: store.Filter{Tag: "all"}}, nil)
	require.Len(t, all, 50)
	members := make([]string, len(all))
	for i, m := range all {
		members[i] = message.Member(m.Found.ID, m.Found.Key)
	}
	require.True(t, slices.IsSorted(members))
	count := func(f store.Filter) int { return len(listAll(t, q, store.ListRequest{Limit: 7, Filter: f}, nil)) }
	require.Equal(t, 25, count(store.Filter{Tag: "all", Topic: "t-1"}))
	require.Equal(t, 13, count(store.Filter{Tag: "all", Key: "k"}))
	require.Equal(t, 10, count(store.Filter{Tag: "all", IDPrefix: "m-0"}))
	require.Zero(t, count(store.Filter{Tag: "all", State: store.StateDead}))
	require.Zero(t, count(store.Filter{Tag: "al"}))
}

// TestListByTagStates: wherever a message with a tag is, it is listed with its state
// and due time, until it has ended.
func TestListByTagStates(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	b := newBridge(t, q)
	tag(t, q, note("1-dead", ""), past(), "a")
	b.settle(b.claim(10), message.Verdict{Verb: message.VerbDeadLetter, Reason: "refused"})
	tag(t, q, note("2-parked", ""), past(), "a")
	b.park(7)
	tag(t, q, note("3-flies", ""), past(), "a")
	claim := b.claim(10)
	tag(t, q, note("4-waits", ""), later(), "a")

	request := store.ListRequest{Limit: 2, Filter: store.Filter{Tag: "a"}}
	list := listAll(t, q, request, nil)
	require.Len(t, list, 4)
	for i, state := range []store.State{store.StateDead, store.StateParked, store.StateInFlight, store.StateScheduled} {
		m := list[i]
		require.Equal(t, state, m.State, m.Found.ID)
		if state != store.StateScheduled {
			require.Equal(t, past().Ms, m.Found.DueAt.UnixMilli(), m.Found.ID)
		}
		one := request
		one.State = state
		require.Equal(t, []string{m.Found.ID}, listedIDs(listAll(t, q, one, nil)))
	}
	require.Equal(t, "refused", list[0].Found.Reason)

	b.settle(claim, acked)
	require.Equal(t, store.Done, cancel(t, q, "4-waits"))
	_, err := q.Admin().Purge(t.Context(), []string{"1-dead"})
	require.NoError(t, err)
	require.Equal(t, []string{"2-parked"}, listedIDs(listAll(t, q, request, nil)))
	shard, err := storetest.Dump(t.Context(), rdb, q.Name(), 0)
	require.NoError(t, err)
	require.NoError(t, shard.Check())
}

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
