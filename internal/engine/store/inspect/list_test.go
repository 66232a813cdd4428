package inspect_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

func listedIDs(list []inspect.ListItem) []string {
	ids := make([]string, len(list))
	for i, m := range list {
		ids[i] = m.Found.ID
	}
	return ids
}

// TestList: pages of any size hold all messages that wait, in due order over all
// shards, each once, though many are due at the same time.
func TestList(t *testing.T) {
	t.Parallel()
	const count = 400
	rdb := shared(t)
	q := storetest.New(t, rdb, 5)
	base := time.Now().Add(storetest.Never).UnixMilli()
	random := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // repeatable
	type waits struct {
		dueMs  int64
		member string
	}
	var want []waits
	for i := range count {
		m, due := storetest.Note(fmt.Sprintf("m-%03d", random.IntN(1_000_000)), "body"), base+int64(random.IntN(20))
		if i%7 == 0 {
			m.Key = "\xff key"
		}
		answer := q.Producer().Schedule(t.Context(), []store.Request{{Message: m, When: storetest.At(due)}}, false, store.Durability{})[0]
		require.NoError(t, answer.Err)
		if answer.Code == store.Created {
			want = append(want, waits{due, message.Member(m.ID, m.Key)})
		}
	}
	slices.SortFunc(want, func(a, b waits) int {
		if a.dueMs != b.dueMs {
			return int(a.dueMs - b.dueMs)
		}
		return strings.Compare(a.member, b.member)
	})
	for _, limit := range []int{1, 7, 100, inspect.MaxList} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			t.Parallel()
			list := storetest.ListAll(t, q, inspect.ListRequest{Limit: limit}, nil)
			require.Len(t, list, len(want))
			for i, m := range list {
				require.NoError(t, m.Found.Err)
				got := waits{m.Found.DueAt.UnixMilli(), message.Member(m.Found.ID, m.Found.Key)}
				require.Equal(t, want[i], got)
				require.Equal(t, inspect.StateScheduled, m.State)
				require.Equal(t, "body", string(m.Found.Body))
			}
		})
	}
}

// TestListGoesOn: where the message that ended a page has left, the next one begins
// behind its place, whatever is due at the same time.
func TestListGoesOn(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	due := time.Now().Add(storetest.Never).UnixMilli()
	for i := range 100 {
		storetest.Create(t, q, fmt.Sprintf("m-%02d", i), storetest.At(due))
	}
	var last string
	r := inspect.ListRequest{Limit: 9}
	var seen []string
	for {
		page, err := inspect.NewAdmin(q).List(t.Context(), r)
		require.NoError(t, err)
		if seen = append(seen, listedIDs(page.Messages)...); page.Next == "" {
			break
		}
		last = seen[len(seen)-1]
		require.Equal(t, store.Done, storetest.Cancel(t, q, last))
		r.After = page.Next
	}
	require.Len(t, seen, 100)
	require.True(t, slices.IsSorted(seen))
}

// TestListStates: a listing has what waits, is parked, is in flight and is dead.
func TestListStates(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.States(t, rdb)
	for _, limit := range []int{1, 3, 50} {
		list := storetest.ListAll(t, q, inspect.ListRequest{Limit: limit}, nil)
		require.Equal(t, []string{"waits-1", "waits-2", "parked-1", "parked-2", "flies-1", "flies-2", "dead-1", "dead-2"}, listedIDs(list))
		for i, state := range []inspect.State{inspect.StateScheduled, inspect.StateParked, inspect.StateInFlight, inspect.StateDead} {
			for _, m := range list[2*i : 2*i+2] {
				require.NoError(t, m.Found.Err)
				require.Equal(t, state, m.State)
				if state != inspect.StateScheduled {
					require.Equal(t, storetest.Past().Ms, m.Found.DueAt.UnixMilli(), m.Found.ID)
				}
			}
			of := storetest.ListAll(t, q, inspect.ListRequest{Limit: limit, Filter: inspect.Filter{State: state}}, nil)
			require.Equal(t, listedIDs(list[2*i:2*i+2]), listedIDs(of))
		}
		require.Equal(t, "refused", list[7].Found.Reason)
		require.False(t, list[7].Found.DiedAt.IsZero())
	}
}

// TestListFilter: what a filter leaves out is not there, and all else is.
func TestListFilter(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 3)
	base := time.Now().Add(storetest.Never).Truncate(time.Millisecond)
	for i := range 60 {
		m := storetest.Note(fmt.Sprintf("%c-%02d", "ab"[i%2], i), "")
		m.Topic = fmt.Sprint("topic-", i%3)
		if i%5 == 0 {
			m.Key = "customer-7"
		}
		due := storetest.At(base.Add(time.Duration(i) * time.Second).UnixMilli())
		storetest.Answered(t, store.Created, q.Producer().Schedule(t.Context(), []store.Request{{Message: m, When: due}}, false, store.Durability{})[0])
	}
	for name, c := range map[string]struct {
		filter inspect.Filter
		fits   func(i int) bool
	}{
		"topic":     {inspect.Filter{Topic: "topic-1"}, func(i int) bool { return i%3 == 1 }},
		"key":       {inspect.Filter{Key: "customer-7"}, func(i int) bool { return i%5 == 0 }},
		"id prefix": {inspect.Filter{IDPrefix: "b-"}, func(i int) bool { return i%2 == 1 }},
		"from":      {inspect.Filter{From: base.Add(40 * time.Second)}, func(i int) bool { return i >= 40 }},
		"to":        {inspect.Filter{To: base.Add(40 * time.Second)}, func(i int) bool { return i < 40 }},
		"all":       {inspect.Filter{Topic: "topic-0", Key: "customer-7", IDPrefix: "a", From: base, To: base.Add(31 * time.Second)}, func(i int) bool { return i%30 == 0 && i <= 30 }},
		"none":      {inspect.Filter{Topic: "other"}, func(int) bool { return false }},
		"no state":  {inspect.Filter{State: inspect.StateDead}, func(int) bool { return false }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want []int
			for i := range 60 {
				if c.fits(i) {
					want = append(want, i)
				}
			}
			var got []int
			for _, m := range storetest.ListAll(t, q, inspect.ListRequest{Filter: c.filter, Limit: 4}, nil) {
				got = append(got, int(m.Found.DueAt.Sub(base).Seconds()))
			}
			require.Equal(t, want, got)
		})
	}
}

// TestListLooksAtFew: a call that finds nothing ends nevertheless, and says where it was.
func TestListLooksAtFew(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 2)
	storetest.ScheduleMany(t, q, "m", inspect.MaxLooked+1000, []byte("x"))
	storetest.Create(t, q, "wanted", storetest.Later())
	page, err := inspect.NewAdmin(q).List(t.Context(), inspect.ListRequest{Filter: inspect.Filter{IDPrefix: "wanted"}, Limit: 10})
	require.NoError(t, err)
	require.Empty(t, page.Messages)
	require.NotEmpty(t, page.Next)
	require.Equal(t, []string{"wanted"}, listedIDs(storetest.ListAll(t, q, inspect.ListRequest{Filter: inspect.Filter{IDPrefix: "wanted"}, Limit: 10}, nil)))
}

// TestListReload: a caller with an old layout sees the shards of the new one.
func TestListReload(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	reader := store.New(rdb, "delay", q.Name())
	require.Empty(t, storetest.ListAll(t, reader, inspect.ListRequest{Limit: 10}, nil))
	_, err := q.Layouts().SetShards(t.Context(), 4)
	require.NoError(t, err)
	for i := range 40 {
		storetest.Create(t, q, fmt.Sprintf("m-%02d", i), storetest.Later())
	}
	require.Len(t, storetest.ListAll(t, reader, inspect.ListRequest{Limit: 10}, nil), 40)
}

// TestListRequest: bad input is refused with the field's name.
func TestListRequest(t *testing.T) {
	t.Parallel()
	q := storetest.New(t, shared(t), 1)
	now := time.Now()
	for field, r := range map[string]inspect.ListRequest{
		"limit 0":                           {},
		"limit 1001":                        {Limit: 1001},
		`tag "a b"`:                         {Limit: 1, Filter: inspect.Filter{Tag: "a b"}},
		`cursor "MA" is that`:               {Limit: 1, After: "MA", Filter: inspect.Filter{Tag: "a"}},
		`cursor "NA" is that`:               {Limit: 1, After: "NA"},
		`state "x"`:                         {Limit: 1, Filter: inspect.Filter{State: "x"}},
		"due from":                          {Limit: 1, Filter: inspect.Filter{From: now, To: now}},
		`cursor "!" was not returned`:       {Limit: 1, After: "!"},
		`cursor "OQ" was not returned`:      {Limit: 1, After: "OQ"},
		`cursor "MCB4IHk" was not returned`: {Limit: 1, After: "MCB4IHk"},
	} {
		_, err := inspect.NewAdmin(q).List(t.Context(), r)
		require.ErrorIs(t, err, inspect.ErrListRequest)
		require.ErrorContains(t, err, field)
	}
}
