package rabbitmq

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

const (
	dead    = "dead"
	healthy = "healthy"
	// soon is much less than the publish timeout, and ample on a busy machine.
	soon = 5 * time.Second
)

// mixed makes a batch without Keys of which every second message is for the
// dead route, and is as large as large.
func mixed(t testing.TB, count, large int) []message.Message {
	batch := make([]message.Message, count)
	for i := range batch {
		batch[i] = newMessage(t, "orders", []string{dead, healthy}[i%2])
		if i%2 == 0 {
			batch[i].Body = make([]byte, large)
		}
	}
	return batch
}

// awaitTopic waits until all messages of a topic have an outcome.
func awaitTopic(t testing.TB, batch []message.Message, outcomes *sinks.Outcomes, topic string, within time.Duration) {
	t.Helper()
	left := 0
	for _, m := range batch {
		if m.Topic == topic {
			left++
		}
	}
	end := time.After(within)
	for left > 0 {
		select {
		case <-outcomes.Changed():
			for _, report := range outcomes.Take() {
				if batch[report.Index].Topic == topic {
					left--
				}
			}
		case <-end:
			t.Fatalf("%d messages to %s have no outcome", left, topic)
		}
	}
}

// TestARouteThatHangs has outcomes of the healthy route come while the other
// one's do not: in the same call, in later ones, for small messages and large.
func TestARouteThatHangs(t *testing.T) {
	t.Parallel()
	for _, large := range []int{10, 10 * provenAtFirst} {
		f := newFake(t, func(topic string, _ int) bool { return topic != dead })
		sink := newSink(t, Config{URL: f.url(), Connections: 1, PublishTimeout: time.Minute})
		var calls sync.WaitGroup
		defer calls.Wait()
		for range 3 {
			batch := mixed(t, 400, large)
			outcomes := sinks.NewOutcomes(len(batch))
			calls.Go(func() { sink.Publish(t.Context(), batch, outcomes) })
			awaitTopic(t, batch, outcomes, healthy, soon)
			require.Equal(t, len(batch)/2, outcomes.Left())
			defer func() {
				calls.Wait()
				for _, outcome := range outcomes.All() {
					require.Equal(t, sinks.Acknowledged, outcome.Class)
				}
			}()
		}
		f.answer(dead)
		f.confirm(dead)
	}
}

// TestASilentRoute gives up a route that does not answer within the publish
// timeout: what was handed over is Unknown, what waited for it is Unavailable,
// and of the route alone.
func TestASilentRoute(t *testing.T) {
	t.Parallel()
	var handed atomic.Int64
	f := newFake(t, func(topic string, _ int) bool {
		if topic == dead {
			handed.Add(1)
		}
		return topic != dead
	})
	sink := newSink(t, Config{URL: f.url(), Connections: 1, PublishTimeout: time.Second})
	for range 2 {
		handed.Store(0)
		batch := mixed(t, 40, 10)
		classes := map[sinks.Class]int{}
		for i, outcome := range publish(t, sink, batch...) {
			if batch[i].Topic == healthy {
				requireOutcome(t, outcome, sinks.Acknowledged, "")
				continue
			}
			require.Equal(t, sinks.ReasonTimeout, outcome.Reason)
			require.False(t, outcome.Whole)
			classes[outcome.Class]++
		}
		require.Equal(t, map[sinks.Class]int{sinks.Unknown: 1, sinks.Unavailable: 19}, classes)
		require.Equal(t, int64(1), handed.Load())
	}
	f.confirm(dead) // too late, on channels that are closed
	requireOutcome(t, publish(t, sink, newMessage(t, "orders", healthy))[0], sinks.Acknowledged, "")
}

// TestASlowLink takes three times the publish timeout and more to bring over what
// is handed to it, most of which some buffer on the way has swallowed: that is
// no reason to give anything up.
func TestASlowLink(t *testing.T) {
	t.Parallel()
	var got atomic.Int64
	f := newFake(t, func(string, int) bool {
		got.Add(1)
		return true
	})
	sink := newSink(t, Config{URL: f.url(), Connections: 1, PublishTimeout: 6 * time.Second})
	batch := make([]message.Message, 1600)
	for i := range batch {
		batch[i] = newMessage(t, "orders", fmt.Sprint("topic-", i%8))
		batch[i].Body = make([]byte, 1000)
	}
	requireOutcome(t, publish(t, sink, batch[0])[0], sinks.Acknowledged, "")
	f.rate.Store(80_000)
	for _, outcome := range publish(t, sink, batch...) {
		requireOutcome(t, outcome, sinks.Acknowledged, "")
	}
	require.Equal(t, int64(len(batch)+1), got.Load())
}

// TestALargeMessageOnASlowLink has nothing but the bytes that leave to show that
// the connection makes progress.
func TestALargeMessageOnASlowLink(t *testing.T) {
	t.Parallel()
	url, topic := testenv.RabbitMQ(t), testenv.Name(t, "topic")
	declare(t, url, topic, nil)
	proxy := testenv.NewProxy(t, address(t, url))
	proxy.Rate(100_000)
	sink := newSink(t, Config{URL: withAddress(t, url, proxy.Addr()), Connections: 1, PublishTimeout: 10 * time.Second})
	requireOutcome(t, publish(t, sink, newMessage(t, "orders", topic))[0], sinks.Acknowledged, "")
	large := newMessage(t, "orders", topic)
	large.Body = make([]byte, 1_500_000)
	requireOutcome(t, publish(t, sink, large)[0], sinks.Acknowledged, "")
	require.Len(t, read(t, url, topic, 2), 2)
}

// TestOneOfAKey lets the broker answer one message at a time: of a Key and
// Topic it has seen no more than one that it has not answered.
func TestOneOfAKey(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[string]int{}
	f := newFake(t, func(topic string, _ int) bool {
		mu.Lock()
		defer mu.Unlock()
		seen[topic]++
		return topic == healthy
	})
	sink := newSink(t, Config{URL: f.url(), Connections: 2, PublishTimeout: time.Minute})
	requireOutcome(t, publish(t, sink, newMessage(t, "orders", healthy))[0], sinks.Acknowledged, "")
	batch := make([]message.Message, 30)
	for i := range batch {
		batch[i] = newMessage(t, "orders", []string{dead, healthy, "other"}[i%3])
		batch[i].Key = "key"
	}
	outcomes := sinks.NewOutcomes(len(batch))
	var call sync.WaitGroup
	call.Go(func() { sink.Publish(t.Context(), batch, outcomes) })
	awaitTopic(t, batch, outcomes, healthy, soon)
	for answered := range 10 {
		for _, topic := range []string{dead, "other"} {
			require.Eventually(t, func() bool {
				mu.Lock()
				defer mu.Unlock()
				return seen[topic] == answered+1
			}, soon, time.Millisecond)
			f.confirm(topic)
		}
	}
	call.Wait()
	for _, outcome := range outcomes.All() {
		require.Equal(t, sinks.Acknowledged, outcome.Class)
	}
}

// TestManyRoutes uses more routes than a connection has channels, of which one
// hangs.
func TestManyRoutes(t *testing.T) {
	t.Parallel()
	f := newFake(t, func(topic string, _ int) bool { return topic != dead })
	sink := newSink(t, Config{URL: f.url(), Connections: 1, PublishTimeout: time.Minute})
	stuck := sinks.NewOutcomes(1)
	var call sync.WaitGroup
	call.Go(func() { sink.Publish(t.Context(), []message.Message{newMessage(t, "orders", dead)}, stuck) })
	for range 2 {
		batch := make([]message.Message, 3*channelsMax)
		for i := range batch {
			batch[i] = newMessage(t, "orders", fmt.Sprint("topic-", i/2))
		}
		for _, outcome := range publish(t, sink, batch...) {
			requireOutcome(t, outcome, sinks.Acknowledged, "")
		}
	}
	connection := connectionOf(t, sink)
	connection.mu.Lock()
	require.LessOrEqual(t, len(connection.channels.all), channelsMax)
	require.LessOrEqual(t, len(connection.channels.byTopic), channelsMax)
	connection.mu.Unlock()
	require.Equal(t, 1, stuck.Left())
	f.confirm(dead)
	call.Wait()
	require.Equal(t, sinks.Acknowledged, stuck.All()[0].Class)
}

// TestPingOfARefusedChannel: that the broker says something is no answer yet.
func TestPingOfARefusedChannel(t *testing.T) {
	t.Parallel()
	f := newFake(t, func(string, int) bool { return true })
	sink := newSink(t, Config{URL: f.url(), Connections: 1})
	require.NoError(t, sink.Ping(t.Context()))
	f.refuses.Store(true)
	require.ErrorContains(t, sink.Ping(t.Context()), "405")
	f.refuses.Store(false)
	require.NoError(t, sink.Ping(t.Context()))
}

func TestRoute(t *testing.T) {
	t.Parallel()
	m := newMessage(t, "orders", "a/b")
	require.Equal(t, sinks.Route("a/b"), newSink(t, Config{URL: "amqp://localhost"}).Route(&m))
	require.Equal(t, sinks.Route("x/a/b"), newSink(t, Config{URL: "amqp://localhost", Exchange: "x"}).Route(&m))
}

// TestAFullQueue has a queue refuse messages while others of it are consumed:
// what it took of each Key is in order, and the batch mates are stored.
func TestAFullQueue(t *testing.T) {
	t.Parallel()
	url, full := testenv.RabbitMQ(t), testenv.Name(t, "full")
	declare(t, url, full, map[string]any{"x-max-length": 200, "x-overflow": "reject-publish"})
	sink := newSink(t, Config{URL: url})
	batch := make([]message.Message, 2000)
	for i := range batch {
		batch[i] = newMessage(t, "orders", full)
		batch[i].Key, batch[i].ID = fmt.Sprint("key-", i%20), fmt.Sprint(i)
		batch[i].Headers = map[string]string{"key": batch[i].Key}
	}
	consuming := open(t, url)
	outcomes := sinks.NewOutcomes(len(batch))
	var call sync.WaitGroup
	call.Go(func() { sink.Publish(t.Context(), batch, outcomes) })
	last := map[any]int{}
	take := func() {
		d, ok, err := consuming.Get(full, true)
		require.NoError(t, err)
		if ok {
			var number int
			_, err := fmt.Sscan(d.MessageId, &number)
			require.NoError(t, err)
			before, seen := last[d.Headers["key"]]
			require.True(t, !seen || number == before+20, "message %d of a Key after %d", number, before)
			last[d.Headers["key"]] = number
		}
	}
	for outcomes.Left() > 0 {
		take()
	}
	call.Wait()
	for range 300 {
		take()
	}
	classes := map[sinks.Class]int{}
	for _, outcome := range outcomes.All() {
		classes[outcome.Class]++
		if outcome.Class != sinks.Acknowledged {
			require.Equal(t, sinks.ReasonRefused, outcome.Reason, outcome.Err)
			require.True(t, outcome.OfRoute)
			require.False(t, outcome.Whole)
		}
	}
	require.Positive(t, classes[sinks.Unknown], "nacked")
	require.Zero(t, classes[sinks.Permanent]+classes[sinks.Retryable])
}

// TestClosedFirst closes the connection before the call hears that the sink closes: what it
// publishes ends with the close all the same, not with a connection that was lost.
func TestClosedFirst(t *testing.T) {
	t.Parallel()
	published := make(chan struct{})
	f := newFake(t, func(string, int) bool {
		close(published)
		return false
	})
	sink := newSink(t, Config{URL: f.url(), Connections: 1})
	ended := make(chan []sinks.Outcome, 1)
	batch := []message.Message{newMessage(t, "orders", "topic"), newMessage(t, "orders", "topic")}
	go func() { ended <- sinks.Publish(t.Context(), sink, batch) }()
	<-published
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, sink.connections.close(ctx))
	outcomes := <-ended
	requireOutcome(t, outcomes[0], sinks.Unknown, sinks.ReasonClosed)
	requireOutcome(t, outcomes[1], sinks.Unavailable, sinks.ReasonClosed) // queued behind the first
}
