package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/hints"
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
		answered(t, store.Created, q.Producer().Schedule(t.Context(), []store.Request{{Message: m, When: past()}}, false, store.Durability{})[0])
		members = append(members, message.Member(id, key))
	}
	other := &message.Message{ID: "xxa?\\", Key: "k1", Topic: "t"}
	answered(t, store.Created, q.Producer().Schedule(t.Context(), []store.Request{{Message: other, When: past()}}, false, store.Durability{})[0])
	find := func() {
		t.Helper()
		found, err := q.Producer().Find(t.Context(), id, 10)
		require.NoError(t, err)
		require.ElementsMatch(t, members, found)
	}
	find() // They wait.
	verdict := buried
	for shard := range 3 {
		claim, err := q.Shard(shard).Claim(t.Context(), message.ClaimRequest{
			Token: message.ClaimToken{Instance: "a", Number: 1}, Max: 10, Timeout: never, Lease: lease,
		})
		require.NoError(t, err)
		find() // Some are in flight.
		_, err = q.Shard(shard).Settle(t.Context(), settlement(claim, verdict))
		require.NoError(t, err)
	}
	find() // All are dead.
	_, err := q.Producer().Find(t.Context(), id, 2)
	require.ErrorIs(t, err, store.ErrTooMany)
	found, err := q.Producer().Find(t.Context(), "nobody", 2)
	require.NoError(t, err)
	require.Empty(t, found)
}

// TestHints hears when the head of a shard moves earlier, and only then.
func TestHints(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	ctx, stop := context.WithCancel(t.Context())
	heard, ended := make(chan int, 100), make(chan struct{})
	all := hints.New(rdb)
	all.Set(q.Keys(), []int{0}, hints.Listener{Wake: func(shard int) { heard <- shard }, Changed: func() {}})
	go func() { defer close(ended); all.Run(ctx) }()
	wake := storetest.Key(q.Name(), 0, "wake")
	require.Eventually(t, func() bool {
		return rdb.PubSubShardNumSub(t.Context(), wake).Val()[wake] == 1
	}, soon, 5*time.Millisecond)
	hear := func(what string) {
		t.Helper()
		select {
		case shard := <-heard:
			require.Zero(t, shard)
		case <-time.After(soon):
			t.Fatal("no hint: ", what)
		}
	}
	hear("something may have been said before")
	b := newBridge(t, q)
	create(t, q, "x", later())
	hear("the first message")
	create(t, q, "y", store.When{Relative: true, Ms: 2 * never.Milliseconds()}) // Behind it.
	reschedule(t, q, "y", past())
	hear("rescheduled to the head")
	b.finish(buried)
	_, err := q.Admin().Redrive(t.Context(), []string{"y"})
	require.NoError(t, err)
	hear("redriven")
	answered(t, store.Replaced, q.Producer().Schedule(t.Context(), requests(past(), "x"), true, store.Durability{})[0])
	hear("replaced")
	require.Empty(t, heard, "and nothing else was said")
	stop()
	<-ended
}

// TestStats counts what a shard holds.
func TestStats(t *testing.T) {
	t.Parallel()
	q := storetest.New(t, shared(t), 1)
	b := newBridge(t, q)
	empty, err := q.Admin().Stats(t.Context(), 0)
	require.NoError(t, err)
	require.True(t, empty.NextDue.IsZero())
	require.Zero(t, empty.OldestDueAge)
	create(t, q, "future", later())
	create(t, q, "flying", past())
	b.claim(1)
	create(t, q, "due", past())
	stats, err := q.Admin().Stats(t.Context(), 0)
	require.NoError(t, err)
	require.EqualValues(t, 2, stats.Waiting)
	require.EqualValues(t, 1, stats.Due)
	require.EqualValues(t, 1, stats.InFlight)
	require.EqualValues(t, 1, stats.Claims)
	require.Equal(t, b.Instance, stats.Holder)
	require.Equal(t, past().Ms, stats.NextDue.UnixMilli())
	require.Greater(t, stats.OldestDueAge, 24*time.Hour)
	require.EqualValues(t, 3, stats.Counters["scheduled"])
	_, err = q.Admin().Stats(t.Context(), -1)
	require.Error(t, err, "no such shard")
}

// TestHeartbeat knows the instances that live.
func TestHeartbeat(t *testing.T) {
	t.Parallel()
	q := storetest.New(t, shared(t), 1)
	for i, instance := range []string{"a", "b", "a"} {
		live, _, err := q.Members().Heartbeat(t.Context(), instance, time.Minute)
		require.NoError(t, err)
		require.Equal(t, []string{"a", "b"}[:min(i+1, 2)], instancesOf(live))
	}
	require.NoError(t, q.Members().Leave(t.Context(), "b"))
	live, _, err := q.Members().Heartbeat(t.Context(), "a", time.Minute)
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, instancesOf(live))
}

// TestClaimRenews a lease and the deadlines of live claims.
func TestClaimRenews(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	b := newBridge(t, q)
	create(t, q, "x", past())
	request := b.request(1)
	request.Timeout = 0
	_, err := q.Shard(0).Claim(t.Context(), request)
	require.NoError(t, err)
	renewal := b.request(0)
	renewal.Live = []message.ClaimToken{request.Token, {Instance: b.Instance, Number: 99}}
	claim, err := q.Shard(0).Claim(t.Context(), renewal)
	require.NoError(t, err)
	s := sound(t, rdb, q)
	require.Greater(t, s.Deadlines[request.Token.String()], claim.Now.UnixMilli())
	require.Len(t, s.Deadlines, 1, "an ended claim is not brought back")
	ttl := rdb.PTTL(t.Context(), storetest.Key(q.Name(), 0, "holder")).Val()
	require.Greater(t, ttl, lease/2)
}
