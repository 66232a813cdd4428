package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/hints"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

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
	_, err := inspect.NewAdmin(q).Redrive(t.Context(), []string{"y"})
	require.NoError(t, err)
	hear("redriven")
	answered(t, store.Replaced, q.Producer().Schedule(t.Context(), requests(past(), "x"), true, store.Durability{})[0])
	hear("replaced")
	require.Empty(t, heard, "and nothing else was said")
	stop()
	<-ended
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
