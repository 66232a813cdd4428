package app

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// sums are the stats of all shards of the fleet's queue.
func (f *fleet) sums() (sum inspect.ShardStats) {
	f.t.Helper()
	sum.Counters = map[string]int64{}
	layout, err := f.queue.Layout(f.t.Context())
	require.NoError(f.t, err)
	for shard := range layout.InUse() {
		stats, err := inspect.NewAdmin(f.queue).Stats(f.t.Context(), shard)
		require.NoError(f.t, err)
		sum.Waiting, sum.Due, sum.InFlight, sum.Parked = sum.Waiting+stats.Waiting, sum.Due+stats.Due, sum.InFlight+stats.InFlight, sum.Parked+stats.Parked
		sum.Dead += stats.Dead
		for name, n := range stats.Counters {
			sum.Counters[name] += n
		}
	}
	return sum
}

// quiet waits until all that was sent and has not come waits, is due, and is in no
// claim.
func (f *fleet) quiet(due int64) {
	f.t.Helper()
	require.Eventually(f.t, func() bool {
		sum := f.sums()
		return sum.Due == due && sum.InFlight == 0
	}, time.Minute, 10*time.Millisecond)
}

// TestPausedQueueSurvives takeovers, restarts and a change of the shards, under load:
// nothing is published meanwhile, and all of it after.
func TestPausedQueueSurvives(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testenv.Redis(t), 8)
	address, proxy := proxied(t, f.redis)
	f.join("a", f.redis)
	f.join("b", address)
	f.held("a", "b")
	f.send()
	since, err := inspect.NewAdmin(f.queue).Pause(t.Context(), "", "ann")
	require.NoError(t, err)
	f.send()
	require.Eventually(t, func() bool {
		return len(f.logs["a"].of("pauses changed")) == 1 && len(f.logs["b"].of("pauses changed")) == 1
	},
		time.Minute, 10*time.Millisecond)
	require.Eventually(t, func() bool { sum := f.sums(); return sum.InFlight == 0 && sum.Due == sum.Waiting }, time.Minute, 10*time.Millisecond)
	before := f.sums()
	assert.Positive(t, before.Waiting, "a part of it was not published yet")

	proxy.Blackhole(true) // The holder of some is dead.
	f.held("a")
	_, err = f.queue.Layouts().SetShards(t.Context(), 12)
	require.NoError(t, err)
	f.shards = 12
	f.held("a")
	f.leave("a")
	f.join("c", f.redis)
	f.held("c")
	f.send()
	f.quiet(before.Waiting + 60)
	assert.Equal(t, before.Counters["published"], f.sums().Counters["published"], "nothing was published")

	was, err := inspect.NewAdmin(f.queue).Resume(t.Context(), "")
	require.NoError(t, err)
	assert.Equal(t, since, was)
	f.all()
	proxy.Blackhole(false)
}

// TestPausedTopicBesideAnother keeps the order of each Key, and is parked as paused,
// while the other topic of the same shards goes on.
func TestPausedTopicBesideAnother(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testenv.Redis(t), 4)
	other := testenv.Name(t, "other")
	got := subscribed(t, other)
	schedule := func(topic, id string, n int) {
		var requests []delay.Request
		for i := range n {
			m := delay.Message{ID: fmt.Sprintf("%s%03d", id, i), Key: fmt.Sprint("k", i%7), Topic: topic}
			m.Headers = map[string]string{"k": m.Key}
			requests = append(requests, delay.Request{Message: m, When: delay.After(time.Duration(i) * 2 * time.Millisecond)})
		}
		results, err := f.client.ScheduleBatch(t.Context(), requests)
		require.NoError(t, err)
		for _, r := range results {
			require.NoError(t, r.Err)
		}
	}
	f.join("a", f.redis)
	f.held("a")
	_, err := inspect.NewAdmin(f.queue).Pause(t.Context(), f.topic, "ann")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(f.logs["a"].of("pauses changed")) == 1 }, time.Minute, 10*time.Millisecond)
	schedule(f.topic, "held-", 300)
	schedule(other, "runs-", 300)
	inOrder(t, got, 300)
	require.Eventually(t, func() bool { return f.sums().Parked == 300 }, time.Minute, 10*time.Millisecond)
	for shard := range f.shards {
		stats, err := inspect.NewAdmin(f.queue).Stats(t.Context(), shard)
		require.NoError(t, err)
		for _, r := range stats.Routes {
			assert.Equal(t, []string{f.topic, "paused"}, []string{r.Route, r.Reason})
		}
	}
	assert.Zero(t, f.sums().Counters["released"])

	require.NoError(t, f.client.Cancel(t.Context(), delay.Ref{ID: "held-007", Key: "k0"}))
	f.leave("a")
	f.join("b", f.redis) // It learns of it before it polls.
	f.held("b")
	schedule(other, "more-", 100)
	inOrder(t, got, 100)
	assert.EqualValues(t, 299, f.sums().Parked)
	_, err = inspect.NewAdmin(f.queue).Resume(t.Context(), f.topic)
	require.NoError(t, err)
	inOrder(t, f.got, 299)
}

// subscribed is a subscription to a topic with a stream.
func subscribed(t *testing.T, topic string) *nats.Subscription {
	t.Helper()
	nc, err := nats.Connect(testenv.NATS(t))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: topic, Subjects: []string{topic}})
	require.NoError(t, err)
	got, err := nc.SubscribeSync(topic)
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	return got
}

// inOrder waits for so many messages, each once, and for those of a Key in the order of
// their ids.
func inOrder(t *testing.T, got *nats.Subscription, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	last := map[string]string{}
	for i := range n {
		m, err := got.NextMsgWithContext(ctx)
		require.NoError(t, err, "%d of %d have come", i, n)
		id, key := m.Header.Get("delay-id"), m.Header.Get("k")
		require.NotEmpty(t, key)
		require.Less(t, last[key], id)
		last[key] = id
	}
}
