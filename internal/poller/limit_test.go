package poller

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// TestLimit is kept over many seconds, whatever the pauses, and saves up for one at the most.
func TestLimit(t *testing.T) {
	for _, total := range []int{1, 7, 100, 5000} {
		t.Run(fmt.Sprint(total), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				l, taken, began := newLimit(total, 4), 0, time.Now()
				require.Zero(t, l.room(), "it begins empty")
				for time.Since(began) < 100*time.Second {
					time.Sleep(l.wait()) //nolint:forbidigo // the bubble's clock
					n := min(l.room(), maxBatch)
					require.Positive(t, n, "what it waited for is there")
					l.spend(n)
					taken += n
				}
				require.InEpsilon(t, float64(total)/4*time.Since(began).Seconds(), taken, 0.05)
				time.Sleep(time.Hour) //nolint:forbidigo // the bubble's clock
				require.LessOrEqual(t, l.room(), max(1, total/4))
			})
		})
	}
	var none *limit
	require.Equal(t, maxBatch, none.room())
	require.Zero(t, none.wait())
	none.spend(7)
}

// TestRateOfAQueue publishes at the rate, in few claims, and parks what is dead without
// waiting for it.
func TestRateOfAQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(c *Config, b *bench) {
			c.Rates = Rates{Messages: 100}
			b.sink.behave = byTopic(map[string]outcome{"dead": full})
			b.store.add(to("dead", 500, b.store.now().Add(-time.Hour), noKey)...)
			b.store.add(to("t", 5000, b.store.now().Add(-time.Minute), func(i int) string { return fmt.Sprint("k", i%5) })...)
		})
		b.pass(20 * time.Second)
		assert.Len(t, b.store.parked(), 500)
		before, claims := len(b.store.acked), len(b.store.takes())
		b.pass(20 * time.Second)
		assert.InDelta(t, 2000, len(b.store.acked)-before, 50)
		assert.Less(t, len(b.store.takes())-claims, 20*claimsASecond*2)
		assertKeyOrder(t, b.sink.calls(), 5)
	})
}

// TestRateOfATopic parks what is above it, in order, while another topic of the shard
// goes on at once.
func TestRateOfATopic(t *testing.T) {
	bubble(t, func(t *testing.T) {
		key := func(i int) string { return fmt.Sprint("k", i%5) }
		b := setup(t, func(c *Config, b *bench) {
			c.Rates = Rates{Topics: map[string]int{"slow": 50}}
			b.sink.latency = 2 * time.Millisecond
			b.store.add(to("slow", 400, b.store.now(), key)...)
		})
		for i := range 200 {
			m := keyed(fmt.Sprintf("fast/%05d", i), key(i), b.store.now().Add(10*time.Millisecond))
			m.Topic = "fast"
			b.store.add(m)
			b.Wake(0)
			b.pass(20 * time.Millisecond)
		}
		assert.InDelta(t, 200, len(b.ackedOf("slow")), 20)
		assert.Equal(t, "rate", b.store.routes[1].Reason)
		assert.Len(t, b.ackedOf("fast"), 200)
		b.observer.read(func() {
			soon := 0
			for _, l := range b.observer.latenesses {
				if l < 100*time.Millisecond {
					soon++
				}
			}
			assert.GreaterOrEqual(t, soon, 200, "the fast ones")
		})
		b.pass(5 * time.Second)
		assert.Len(t, b.ackedOf("slow"), 400)
		assert.Empty(t, b.store.parked())
		assertKeyOrder(t, b.sink.calls(), 5)
		one := keyed("slow/00400", key(0), b.store.now())
		one.Topic = "slow"
		b.store.add(one)
		b.Wake(0)
		b.pass(50 * time.Millisecond)
		assert.Len(t, b.ackedOf("slow"), 401, "below the rate nothing waits")
	})
}

// TestRateOfManyRoutes keeps a topic's rate over its parts, one of which is down.
func TestRateOfManyRoutes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(c *Config, b *bench) {
			c.Rates = Rates{Topics: map[string]int{"slow": 50}}
			part := func(m *message.Message) sinks.Route { return sinks.Route(m.Topic + "/" + m.Key) }
			c.Sink.Sink = &parted{fakeSink: b.sink, route: part}
			b.sink.behave = func(_ ctx, batch []message.Message) []outcome {
				list := all(batch, acked)
				for i := range batch {
					if batch[i].Key == "k1" {
						list[i] = full
					}
				}
				return list
			}
			b.store.add(to("slow", 800, b.store.now(), func(i int) string { return fmt.Sprint("k", i%4) })...)
		})
		b.pass(8 * time.Second)
		assert.InDelta(t, 400, len(b.ackedOf("slow")), 60)
		b.pass(7 * time.Second)
		require.Len(t, b.ackedOf("slow"), 600)
		b.sink.set(same(acked))
		b.pass(10 * time.Second)
		require.Len(t, b.ackedOf("slow"), 800)
		assertKeyOrder(t, b.sink.calls(), 4)
	})
}
