package poller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// paused are topics that are paused since now.
func (b *bench) paused(topics ...string) map[string]time.Time {
	paused := map[string]time.Time{}
	for _, topic := range topics {
		paused[topic] = b.store.now()
	}
	return paused
}

// ackedOf are the IDs of a topic in the order in which they were acknowledged.
func (b *bench) ackedOf(topic string) (ids []string) {
	b.store.read(func() {
		for _, id := range b.store.acked {
			if strings.HasPrefix(id, topic+"/") {
				ids = append(ids, id)
			}
		}
	})
	return ids
}

// TestPausedQueueClaimsNothing pauses a queue under load, with more being
// scheduled, and resumes it.
func TestPausedQueueClaimsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(_ *Config, b *bench) {
			b.sink.latency = 50 * time.Millisecond
			b.store.add(to("t", 3000, b.store.now(), func(i int) string { return fmt.Sprint("k", i%5) })...)
		})
		b.pass(120 * time.Millisecond)
		b.Pause(b.paused(""))
		b.pass(time.Second)
		before := len(b.ackedOf("t"))
		require.Positive(t, before)
		require.Less(t, before, 3000)
		require.Zero(t, b.observer.inFlight.Load(), "what is in flight is finished")
		requests, looks := len(b.store.takes()), len(b.store.requests)

		for i := range 20 {
			m := to("keyless", 1, b.store.now(), noKey)[0]
			m.ID = fmt.Sprintf("keyless/%05d", i)
			m.Member = m.ID
			b.store.add(m)
			b.Wake(0)
			b.pass(time.Second)
		}
		require.Len(t, b.ackedOf("t"), before)
		require.Len(t, b.store.takes(), requests)
		require.Equal(t, "me", b.store.holder)
		require.True(t, b.store.until.After(b.store.now()), "the lease is renewed")
		require.LessOrEqual(t, len(b.store.requests)-looks, 11, "and nothing else")
		require.NoError(t, b.Live())

		b.Pause(b.paused())
		b.pass(time.Millisecond)
		require.Greater(t, len(b.store.takes()), requests, "at once")
		b.pass(5 * time.Second)
		assert.Len(t, b.ackedOf("keyless"), 20)
		assert.Len(t, b.ackedOf("t"), 3000)
		assertKeyOrder(t, b.sink.calls(), 5)
	})
}

// assertKeyOrder checks that each Key's messages were first published in due order (I15);
// the i-th message of a topic has the Key i%keys.
func assertKeyOrder(t *testing.T, calls []fakePublish, keys int) {
	t.Helper()
	last, seen := map[string]int{}, map[string]bool{}
	for _, call := range calls {
		for _, id := range call.ids {
			topic, number, _ := strings.Cut(id, "/")
			var n int
			_, err := fmt.Sscanf("1"+number, "%d", &n)
			require.NoError(t, err)
			if key := fmt.Sprint(topic, n%keys); !seen[id] && topic != "keyless" {
				require.Less(t, last[key], n, "order of %s", key)
				last[key], seen[id] = n, true
			}
		}
	}
}

// TestPausedTopicIsParked beside another topic, and comes back in order.
func TestPausedTopicIsParked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		key := func(i int) string { return fmt.Sprint("k", i%5) }
		b := setup(t, func(_ *Config, b *bench) {
			b.sink.latency = 20 * time.Millisecond
			b.store.add(to("held", 3000, b.store.now(), key)...)
			b.store.add(to("runs", 3000, b.store.now(), key)...)
		})
		b.pass(500 * time.Millisecond)
		b.Pause(b.paused("held"))
		b.pass(time.Second)
		before := len(b.ackedOf("held"))
		require.Positive(t, before)
		b.pass(9 * time.Second)
		require.Len(t, b.ackedOf("runs"), 3000)
		require.Len(t, b.ackedOf("held"), before)
		require.Len(t, b.store.parked(), 3000-before)
		require.Equal(t, "paused", b.store.routes[1].Reason)
		for _, r := range b.store.takes() {
			require.Zero(t, r.Slot, "it is not probed")
		}

		b.Pause(b.paused("another"))
		b.pass(5 * time.Second)
		require.Len(t, b.ackedOf("held"), 3000)
		require.Empty(t, b.store.parked())
		assertKeyOrder(t, b.sink.calls(), 5)
		assert.Zero(t, strings.Count(b.logs.String(), "route unavailable"))
	})
}

// TestPausedTopicOfManyRoutes has a sink whose routes are parts of a topic, one of which
// is down. A holder that comes does not know of which topic what is parked is.
func TestPausedTopicOfManyRoutes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := newFakeStore()
		part := func(m *message.Message) sinks.Route { return sinks.Route(m.Topic + "/" + m.Key) }
		of := func(instance string) *bench {
			return setup(t, func(c *Config, b *bench) {
				b.store, c.Store, c.Instance = store, store.shard, instance
				c.Sink.Sink = &routedSink{fakeSink: b.sink, route: part}
				b.sink.behave = func(_ ctx, batch []message.Message) []outcome {
					list := all(batch, acked)
					for i := range batch {
						if batch[i].Key == "k1" {
							list[i] = full
						}
					}
					return list
				}
			})
		}
		store.add(to("held", 100, store.now(), func(i int) string { return fmt.Sprint("k", i%2) })...)
		first := of("first")
		first.pass(time.Second)
		require.Len(t, store.acked, 50)
		first.Pause(first.paused("held"))
		store.add(due("x", store.now()))
		first.Wake(0)
		first.pass(10 * time.Second)
		calls := len(first.sink.calls())
		first.pass(10 * time.Second)
		require.Len(t, first.sink.calls(), calls, "nothing of it is probed")
		require.NoError(t, first.stop(t, time.Minute))

		second := of("second")
		second.Pause(second.paused("held"))
		more := to("held", 200, store.now(), func(i int) string { return fmt.Sprint("k", i%2) })[100:]
		store.add(more...)
		second.Wake(0)
		second.pass(10 * time.Second)
		require.Empty(t, second.sink.calls())
		require.Len(t, store.parked(), 150)

		second.sink.set(same(acked))
		second.Pause(nil)
		second.pass(5 * time.Second)
		require.Len(t, store.acked, 201)
		assertKeyOrder(t, slices.DeleteFunc(second.sink.calls(), func(p fakePublish) bool { return p.ids[0] == "x" }), 2)
	})
}

// routedSink chooses routes by a function.
type routedSink struct {
	*fakeSink
	route func(*message.Message) sinks.Route
}

func (p *routedSink) Route(m *message.Message) sinks.Route { return p.route(m) }

// TestPauseIsNoPatience: a topic that is found to be missing after a long pause was not
// missing all the time.
func TestPauseIsNoPatience(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(_ *Config, b *bench) { b.store.add(to("gone", 10, b.store.now(), noKey)...) },
			func(c *Config, b *bench) {
				c.ParkPatience = 10 * time.Minute
				b.sink.behave = byTopic(map[string]outcome{"gone": missing})
			})
		b.pass(time.Second)
		b.Pause(b.paused("gone"))
		b.pass(20 * time.Minute)
		require.Empty(t, b.store.dead, "a pause gives no route up")
		b.Pause(nil)
		b.pass(9 * time.Minute)
		require.Empty(t, b.store.dead)
		b.pass(2 * time.Minute)
		require.Len(t, b.store.dead, 10)
	})
}
