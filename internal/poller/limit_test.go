package poller

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/poller/rate/ratetest"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// TestRateCostsNothingIdle: the bucket is asked while there is traffic, ten times a second or
// so, and not by a queue that is idle or has no rates.
func TestRateCostsNothingIdle(t *testing.T) {
	unraced(t)
	for _, rates := range []Rates{{}, {Messages: 100}, {Topics: map[string]int{"t": 50, "u": 1}}} {
		t.Run(fmt.Sprint(rates), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				bucket := &ratetest.Bucket{}
				b := setup(t, func(c *Config, _ *bench) { c.Rates, c.Bucket = rates, bucket })
				calls := func() (n int) { bucket.Set(func() { n, bucket.Calls = bucket.Calls, 0 }); return n }
				b.pass(time.Hour)
				assert.LessOrEqual(t, calls(), 2)
				b.store.add(many(2000, b.store.now())...)
				b.Wake(0)
				b.pass(10 * time.Second)
				if len(rates.Topics)+rates.Messages > 0 {
					assert.LessOrEqual(t, calls(), 10*12)
				}
				b.pass(time.Minute)
				assert.Len(t, b.store.acked, 2000)
				b.pass(time.Second)
				calls()
				b.pass(time.Hour)
				assert.Zero(t, calls())
			})
		})
	}
}

// TestRateOfASlowBroker: messages of few Keys go from claim to claim, each of which waits for
// the answers to the one before. The rate is reached all the same, and what waits does not pass
// for hanging, since it takes no room in the window.
func TestRateOfASlowBroker(t *testing.T) {
	unraced(t)
	for _, took := range []time.Duration{300 * time.Millisecond, 450 * time.Millisecond, 600 * time.Millisecond, time.Second, 2 * time.Second} {
		for _, keys := range []int{1, 5} {
			t.Run(fmt.Sprint(took, " ", keys), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					b := setup(t, func(c *Config, b *bench) {
						c.Rates, c.Bucket = Rates{Messages: 100}, &ratetest.Bucket{}
						b.sink.latency = took
						b.store.add(to("t", 8000, b.store.now().Add(-time.Minute), func(i int) string { return fmt.Sprint("k", i%keys) })...)
					})
					b.pass(20 * time.Second)
					before := len(b.store.acked)
					b.pass(20 * time.Second)
					want := 2000.
					if took > time.Second { // A claim is worth a second of the rate at the most.
						want *= time.Second.Seconds() / took.Seconds()
					}
					assert.InDelta(t, want, len(b.store.acked)-before, 200)
					assertKeyOrder(t, b.sink.calls(), keys)
				})
			})
		}
	}
}

// TestRateOfASlowStore: the rate is reached where each claim takes long, also by an instance that holds few of the
// queue's shards.
func TestRateOfASlowStore(t *testing.T) {
	unraced(t)
	for _, took := range []time.Duration{time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond} {
		for _, shards := range []int{1, 2, 32, 128} {
			t.Run(fmt.Sprint(took, " ", shards), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					b := setup(t, func(c *Config, b *bench) {
						c.Rates, c.Bucket = Rates{Messages: 640}, &ratetest.Bucket{}
						b.store.beforeClaim = func(message.ClaimRequest) error {
							time.Sleep(took) //nolint:forbidigo // the bubble's clock
							return nil
						}
						b.store.add(to("t", 12_000, b.store.now().Add(-time.Minute), func(int) string { return "k" })...)
					})
					b.queue.rates.Spread(shards)
					b.pass(5 * time.Second)
					before := len(b.store.acked)
					b.pass(10 * time.Second)
					assert.InDelta(t, 6400, len(b.store.acked)-before, 650)
				})
			})
		}
	}
}

// TestBelowTheRateNothingWaits, also if each claim takes all that it may.
func TestBelowTheRateNothingWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(c *Config, _ *bench) {
			c.Rates, c.Bucket = Rates{Messages: 20}, &ratetest.Bucket{Takes: 20 * time.Millisecond}
		})
		b.queue.rates.Spread(32)
		for i := range 20 {
			b.pass(time.Second / 2)
			b.store.add(keyed(fmt.Sprint("m", i), "k", b.store.now()))
			b.Wake(0)
			b.pass(time.Millisecond)
			if i > 5 { // At first the bucket is empty.
				require.Len(t, b.store.acked, i+1)
			}
		}
	})
}

// TestRateOfWhatIsNotPublished: messages that are dropped, of which there are as many, count for
// nothing.
func TestRateOfWhatIsNotPublished(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(c *Config, b *bench) {
			c.Rates, c.Bucket = Rates{Messages: 100}, &ratetest.Bucket{}
			c.Late = message.Late{After: time.Hour, Then: message.LateDrop}
			for i := range 2000 {
				b.store.add(due(fmt.Sprintf("late%04d", i), b.store.now().Add(-2*time.Hour)), due(fmt.Sprintf("m%04d", i), b.store.now()))
			}
		})
		b.pass(11 * time.Second)
		assert.InDelta(t, 1000, len(b.store.acked), 100)
	})
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
		assert.Less(t, len(b.store.takes())-claims, 20*10*2)
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
