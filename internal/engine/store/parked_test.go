package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// verdicts settles a claim with one verdict a message.
func (b *bridge) verdicts(claim message.Claim, list ...message.Verdict) message.Settlement {
	b.t.Helper()
	s := message.Settlement{Claim: claim, Verdicts: list}
	stale, err := b.q.Shard(0).Settle(b.t.Context(), s)
	require.NoError(b.t, err)
	require.False(b.t, stale)
	return s
}

func ids(claim message.Claim) []string {
	list := make([]string, len(claim.Messages))
	for i, m := range claim.Messages {
		list[i] = m.ID
	}
	return list
}

func listParked(t testing.TB, q *store.Queue) []message.ParkedRoute {
	t.Helper()
	routes, err := q.Shard(0).Parked(t.Context())
	require.NoError(t, err)
	return routes
}

// park claims all that is due and parks it in the slot.
func (b *bridge) park(slot int, routes ...message.ParkedRoute) { b.Helper(); b.Park(slot, routes...) }

// TestParked leaves the way of what is due, is found by slot, and comes back in
// due order at its promised due time.
func TestParked(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	b := newBridge(t, q)
	for i := range 6 {
		create(t, q, fmt.Sprint("dead-", i), at(int64(6-i)))
	}
	since := time.UnixMilli(1_700_000_000_000)
	b.park(2047, message.ParkedRoute{Slot: 2047, Route: "topic 7: ü", Reason: "no leader", Since: since})
	create(t, q, "healthy", at(4))
	create(t, q, "later", later())

	stats, err := inspect.NewAdmin(q).Stats(t.Context(), 0)
	require.NoError(t, err)
	require.EqualValues(t, 8, stats.Waiting)
	require.EqualValues(t, 6, stats.Parked)
	require.EqualValues(t, 1, stats.Due)
	require.EqualValues(t, 4, stats.NextDue.UnixMilli())
	require.EqualValues(t, 1, stats.OldestParked.UnixMilli())
	require.EqualValues(t, 6, stats.Counters["parked"])
	require.Equal(t, []message.ParkedRoute{{
		Slot: 2047, Route: "topic 7: ü", Reason: "no leader", Since: since, Messages: 6, Oldest: time.UnixMilli(1),
	}}, listParked(t, q))

	// A few of them are tried, in due order, and go back to where they were.
	tried := b.claimSlot(2047, 2, 2047)
	require.Equal(t, []string{"dead-5", "dead-4"}, ids(tried))
	require.EqualValues(t, 2, tried.Messages[1].DueAt.UnixMilli())
	require.True(t, tried.More)
	found, _, err := inspect.Get(t.Context(), q, "dead-4", "")
	require.NoError(t, err)
	require.EqualValues(t, 2, found.DueAt.UnixMilli())
	b.settle(tried, message.Verdict{Verb: message.VerbPark, Slot: 2047})
	require.Equal(t, 6, listParked(t, q)[0].Messages)
	require.Equal(t, since, listParked(t, q)[0].Since, "not forgotten while it holds any")

	all := b.claim(100)
	require.Equal(t, []string{"healthy"}, ids(all))
	require.Greater(t, all.NextDue.Sub(all.Now), never/2, "the head is not a parked one")
	b.settle(all, acked)
	b.settle(b.claimSlot(2047, 100, 2047), acked)
	require.Empty(t, listParked(t, q))
	require.Empty(t, sound(t, rdb, q).Routes, "freed")
	none := b.claim(1)
	require.Greater(t, none.NextDue.Sub(none.Now), never/2)
}

// TestParkedRoutes keeps since when a route is parked, and survives its loss.
func TestParkedRoutes(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	b := newBridge(t, q)
	first, second := time.UnixMilli(1_000), time.UnixMilli(2_000)
	for i, r := range []struct {
		route message.ParkedRoute
		since time.Time
	}{
		{message.ParkedRoute{Slot: 3, Route: "a", Reason: "full", Since: first}, first},
		{message.ParkedRoute{Slot: 3, Route: "a", Reason: "no leader", Since: second}, first},
		{message.ParkedRoute{Slot: 3, Route: "ab", Reason: "full", Since: second}, second},
	} {
		create(t, q, fmt.Sprint(i), at(int64(i)))
		b.park(3, r.route)
		got := listParked(t, q)[0]
		require.Equal(t, []any{r.route.Route, r.route.Reason, r.since}, []any{got.Route, got.Reason, got.Since})
	}
	create(t, q, "other", at(9))
	before := time.UnixMilli(must(redisNow(t.Context(), rdb)))
	b.park(4, message.ParkedRoute{Slot: 4, Route: "b"})
	require.False(t, listParked(t, q)[1].Since.Before(before), "without an instant it is now")
	require.NoError(t, rdb.Del(t.Context(), storetest.Key(q.Name(), 0, "routes")).Err())
	require.Equal(t, []message.ParkedRoute{
		{Slot: 3, Messages: 3, Oldest: time.UnixMilli(0)}, {Slot: 4, Messages: 1, Oldest: time.UnixMilli(9)},
	}, listParked(t, q))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestParkedManySlots lists more slots than one script looks at.
// TestParkedForLater: a slot is not empty whose messages are due later, as they are once the
// clock was set back.
func TestParkedForLater(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	b := newBridge(t, q)
	create(t, q, "m", at(1))
	b.park(7)
	create(t, q, "other", later())
	due := storetest.Key(q.Name(), 0, "due")
	move := func(ms int64) {
		require.NoError(t, rdb.ZAddXX(t.Context(), due, redisZ("m", 7<<42+ms)).Err())
	}
	move(time.Now().Add(time.Hour).UnixMilli())
	claim := b.claimSlot(7, 10)
	require.Empty(t, claim.Messages)
	require.True(t, claim.More)
	require.False(t, b.claimSlot(8, 10).More)
	move(1)
	claim = b.claimSlot(7, 10)
	require.Equal(t, []string{"m"}, ids(claim))
	require.False(t, claim.More)
}

func TestParkedManySlots(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	b := newBridge(t, q)
	const n = store.MaxBatch
	list := make([]store.Request, n)
	for i := range list {
		list[i] = store.Request{Message: &message.Message{ID: fmt.Sprint(i), Topic: "t"}, When: at(int64(i))}
	}
	q.Producer().Schedule(t.Context(), list, false, store.Durability{})
	s := settlement(b.claim(n), released)
	for i := range s.Verdicts {
		s.Verdicts[i] = message.Verdict{Verb: message.VerbPark, Slot: 2*i + 1}
		s.Parks = append(s.Parks, message.ParkedRoute{Slot: 2*i + 1, Route: fmt.Sprint("route ", i)})
	}
	_, err := q.Shard(0).Settle(t.Context(), s)
	require.NoError(t, err)
	routes := listParked(t, q)
	require.Len(t, routes, n)
	for i, r := range routes {
		require.Equal(t, []any{2*i + 1, fmt.Sprint("route ", i), 1, int64(i)}, []any{r.Slot, r.Route, r.Messages, r.Oldest.UnixMilli()})
	}
	_, err = q.Shard(0).Settle(t.Context(), settlement(b.claimSlot(1, 1), message.Verdict{Verb: message.VerbPark, Slot: message.MaxSlot + 1}))
	require.ErrorContains(t, err, "slot 2048")
}

// TestParkedReclaimed goes back into its slot, and a lower clock does not make
// what is parked early.
func TestParkedReclaimed(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	b := newBridge(t, q)
	create(t, q, "x", at(5))
	b.park(9)
	b.claimSlot(9, 1)
	require.NoError(t, q.Shard(0).HandOver(t.Context(), b.Instance))
	b.Instance = "next"
	b.takeOver()
	s := sound(t, rdb, q)
	require.Equal(t, message.ParkedScore(9, time.UnixMilli(5)), s.Due["x"])
	require.Equal(t, markedOnce, s.Attempts["x"])

	future := time.Now().Add(never)
	require.NoError(t, rdb.ZAddXX(t.Context(), storetest.Key(q.Name(), 0, "due"),
		redisZ("x", message.ParkedScore(9, future))).Err())
	require.Empty(t, b.claimSlot(9, 1).Messages)
}

// TestPromise is what a message is told to be due at, whatever it goes through.
func TestPromise(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	b := newBridge(t, q)
	create(t, q, "x", at(77))
	again := retried
	again.Delay = 0
	next := func(slot int) message.Claim {
		var claim message.Claim
		require.Eventually(t, func() bool { claim = b.claimSlot(slot, 1); return len(claim.Messages) == 1 }, soon, time.Millisecond)
		require.EqualValues(t, 77, claim.Messages[0].DueAt.UnixMilli())
		return claim
	}
	for range 3 { // Retried thrice.
		b.settle(next(0), again)
	}
	claim := next(0)
	require.NoError(t, rdb.ZAdd(t.Context(), storetest.Key(q.Name(), 0, "deadlines"), redisZ(claim.Token.String(), 1)).Err())
	n, _, err := q.Shard(0).Reclaim(t.Context(), message.Reclaim{Instance: b.Instance})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, claim.Messages[0].Score, sound(t, rdb, q).Due["x"], "reclaimed to where it was")
	b.settle(next(0), released)
	require.Equal(t, "1 2 1 0", sound(t, rdb, q).Attempts["x"], "the score tells it")
	b.settle(next(0), again)
	b.settle(next(0), message.Verdict{Verb: message.VerbPark, Slot: 1, Attempts: again.Attempts})
	require.Equal(t, again.Attempts.String(), sound(t, rdb, q).Attempts["x"])
	b.settle(next(1), again)
	b.settle(next(0), buried)
	found, _, err := inspect.Get(t.Context(), q, "x", "")
	require.NoError(t, err)
	require.EqualValues(t, 77, found.DueAt.UnixMilli(), "dead")
}
