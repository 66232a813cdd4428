package poller

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// fakeBucket has the rules of the store's: a second's worth at the most, and nothing at first.
type fakeBucket struct {
	mu    sync.Mutex
	until map[string]time.Time // the rate is used up
	calls int
	err   error
	hangs bool // until its context ends
	isDry bool // it grants nothing
}

// TakeRates implements [Bucket].
func (f *fakeBucket) TakeRates(ctx context.Context, asked []message.RateRequest) (granted []int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if f.hangs {
		f.mu.Unlock()
		<-ctx.Done()
		f.mu.Lock()
		return nil, ctx.Err()
	}
	if f.until == nil {
		f.until = map[string]time.Time{}
	}
	now := time.Now()
	for _, r := range asked {
		until, isKnown := f.until[r.Topic]
		if !isKnown {
			until = now
		}
		if saved := now.Add(-time.Second - min(time.Second/5, time.Second/time.Duration(r.Rate)-1)); until.Before(saved) {
			until = saved
		}
		n := min(r.Messages, int(now.Sub(until)*time.Duration(r.Rate)/time.Second))
		if f.isDry {
			n = min(n, 0)
		}
		f.until[r.Topic] = until.Add(time.Duration(n) * time.Second / time.Duration(r.Rate))
		granted = append(granted, n)
	}
	return granted, f.err
}

func (f *fakeBucket) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// member are the rates of one instance, with quotas of shards.
func member(t *testing.T, bucket Bucket, all Rates, of int, shards ...int) (*rates, []*quota) {
	c := Config{Bucket: bucket, Policy: Policy{Rates: all}}.withDefaults()
	rs := newRates(&c, newClock(), func(string) bool { return true })
	rs.shards.Store(int32(of))
	rs.start(t.Context())
	t.Cleanup(rs.stop)
	quotas := make([]*quota, len(shards))
	for i, shard := range shards {
		quotas[i] = &quota{rates: rs, shard: shard, wake: func() {}}
		quotas[i].holds(true)
	}
	return rs, quotas
}

func numbers(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// busy has a shard claim all that it may until the context ends, a claim a millisecond.
func busy(ctx context.Context, q *quota, claimed func(n int)) {
	woken := make(chan struct{}, 1)
	q.wake = func() { signal(woken) }
	for wait.Sleep(ctx, time.Millisecond) {
		n := q.take("", maxBatch, 0)
		claimed(n)
		if n == 0 {
			wait.SleepOrWake(ctx, time.Minute, woken)
		}
	}
}

// adder adds up what busy shards claim.
func adder(sum *atomic.Int64) func(int) { return func(n int) { sum.Add(int64(n)) } }

// TestRateIsReached by whichever shards have the traffic, and kept, whatever the number of
// instances is; each shard has its part.
func TestRateIsReached(t *testing.T) {
	for _, rate := range []int{1, 7, 100, 5000} {
		for _, c := range []struct{ instances, busy, of int }{{1, 1, 1}, {1, 1, 8}, {1, 8, 8}, {3, 1, 24}, {3, 8, 24}, {8, 1, 8}} {
			t.Run(fmt.Sprint(rate, c), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					bucket, ctx := &fakeBucket{}, t.Context()
					taken := make([]atomic.Int64, c.instances*c.busy)
					for i := range c.instances {
						_, quotas := member(t, bucket, Rates{Messages: rate}, c.of, numbers(c.of/c.instances)...)
						for k := range c.busy {
							go busy(ctx, quotas[k], adder(&taken[i*c.busy+k]))
						}
					}
					sum := func() (n int64) {
						for i := range taken {
							n += taken[i].Load()
						}
						return n
					}
					time.Sleep(10 * time.Second) //nolint:forbidigo // the bubble's clock
					before := sum()
					time.Sleep(100 * time.Second) //nolint:forbidigo // the bubble's clock
					got := sum() - before
					assert.InDelta(t, 100*rate, got, 0.02*100*float64(rate)+float64(c.instances))
					if c.instances == 1 && rate >= 7 { // Else whoever asks first has it.
						for i := range taken {
							assert.InEpsilon(t, sum()/int64(len(taken)), taken[i].Load(), 0.2)
						}
					}
					bucket.set(func() { assert.Less(t, bucket.calls, c.instances*110*12) })
				})
			})
		}
	}
}

// TestRateIsNeverExceeded: instances begin, die with what they have, and are idle in between. In
// no second are there more than two seconds' worth, beside what they have in hand: a fifth of
// a second's worth together, or a message each.
func TestRateIsNeverExceeded(t *testing.T) {
	for _, rate := range []int{1, 30, 1000} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var mu sync.Mutex
				var at []time.Time // of each message
				note := func(n int) {
					mu.Lock()
					defer mu.Unlock()
					at = append(at, slices.Repeat([]time.Time{time.Now()}, n)...)
				}
				bucket := &fakeBucket{}
				const instances, rounds = 4, 60
				for i := range instances {
					go func() {
						for round := range rounds {
							rs, quotas := member(t, bucket, Rates{Messages: rate}, 2*instances, 2*i, 2*i+1)
							ctx, cancel := context.WithTimeout(t.Context(), time.Duration(700+300*i)*time.Millisecond)
							for _, q := range quotas {
								go busy(ctx, q, note)
							}
							<-ctx.Done()
							cancel()
							if round%3 == 0 {
								wait.Sleep(t.Context(), time.Duration(3-i%2)*time.Second)
							}
							rs.stop()
						}
					}()
				}
				time.Sleep(100 * time.Second) //nolint:forbidigo // the bubble's clock
				mu.Lock()
				defer mu.Unlock()
				most, first := 0, 0
				for last := range at {
					for at[last].Sub(at[first]) >= time.Second {
						first++
					}
					most = max(most, last-first+1)
				}
				t.Logf("%d messages, %d in a second", len(at), most)
				assert.LessOrEqual(t, most, int(2.2*float64(rate))+instances)
				assert.Greater(t, len(at), 50*rate)
			})
		})
	}
}

// TestRateWithoutBucket: where the bucket fails or hangs, each instance has the part of the
// shards that it holds, and no shard waits for a call; afterwards they share it again.
func TestRateWithoutBucket(t *testing.T) {
	for name, fail := range map[string]func(*fakeBucket){
		"fails": func(f *fakeBucket) { f.err = errRedis },
		"hangs": func(f *fakeBucket) { f.hangs = true },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				bucket, taken := &fakeBucket{}, make([]atomic.Int64, 2)
				_, six := member(t, bucket, Rates{Messages: 400}, 8, numbers(6)...)
				_, two := member(t, bucket, Rates{Messages: 400}, 8, 6, 7)
				go busy(t.Context(), six[0], adder(&taken[0]))
				go busy(t.Context(), two[0], adder(&taken[1]))
				during := func(d time.Duration) (of [2]int64) {
					for i := range taken {
						of[i] = -taken[i].Load()
					}
					time.Sleep(d) //nolint:forbidigo // the bubble's clock
					for i := range taken {
						of[i] += taken[i].Load()
					}
					return of
				}
				during(10 * time.Second)
				both := during(100 * time.Second)
				assert.InEpsilon(t, 40_000, both[0]+both[1], 0.02)
				bucket.set(func() { fail(bucket) })
				during(2 * time.Second)
				began := time.Now()
				for _, q := range six[1:] {
					q.give("", -1)
					q.take("", 1, 0)
					q.holds(false)
					q.holds(true)
				}
				assert.Zero(t, time.Since(began))
				alone := during(100 * time.Second)
				assert.InEpsilon(t, 30_000, alone[0], 0.03)
				assert.InEpsilon(t, 10_000, alone[1], 0.03)
				bucket.set(func() { bucket.err, bucket.hangs = nil, false })
				during(3 * time.Second)
				both = during(100 * time.Second)
				assert.InEpsilon(t, 40_000, both[0]+both[1], 0.02)
			})
		})
	}
}

// TestRateBackAgain: what a claim does not use, and what is not handed to the sink, may be
// claimed again; what goes back to wait a moment later.
func TestRateBackAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		bucket := &fakeBucket{}
		rs, quotas := member(t, bucket, Rates{Messages: 100, Topics: map[string]int{"t": 100}}, 2, 0, 1)
		q := quotas[0]
		inHand := func() (of [2]float64) {
			time.Sleep(time.Second) //nolint:forbidigo // the bubble's clock
			rs.mu.Lock()
			defer rs.mu.Unlock()
			return [2]float64{rs.limits[""].free, rs.limits["t"].free}
		}
		require.Zero(t, q.take("", maxBatch, 0), "it has nothing at first")
		require.False(t, q.mayTake("t", 0))
		before := inHand()
		n := int(before[0])
		require.Equal(t, [2]float64{float64(n), float64(n)}, before)
		require.GreaterOrEqual(t, n, 10)
		bucket.set(func() { bucket.isDry = true })
		for range 10 {
			a := q.allow("t", maxBatch, 0)
			require.Equal(t, n, a.messages)
			q.spend(many(3, time.Now()), nil) // They are of topic t.
			q.use(a, 3)
			require.Equal(t, allowance{"t", n - 3}, q.allow("t", maxBatch, 0))
			q.use(allowance{"t", n - 3}, 0)
			q.refund(many(2, time.Now()), []int{0, 1}, false)
			a = q.allow("t", maxBatch, 0)
			require.Equal(t, n-1, a.messages)
			q.use(a, 0)
			q.refund(many(1, time.Now()), []int{0}, true)
			a = q.allow("t", maxBatch, 0)
			require.Equal(t, n-1, a.messages)
			q.use(a, 0)
			require.Equal(t, before, inHand())
		}
	})
}

// TestRateCostsNothingIdle: the bucket is asked while there is traffic, ten times a second or
// so, and not by a queue that is idle or has no rates.
func TestRateCostsNothingIdle(t *testing.T) {
	for _, rates := range []Rates{{}, {Messages: 100}, {Topics: map[string]int{"t": 50, "u": 1}}} {
		t.Run(fmt.Sprint(rates), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				bucket := &fakeBucket{}
				b := setup(t, func(c *Config, _ *bench) { c.Rates, c.Bucket = rates, bucket })
				calls := func() (n int) { bucket.set(func() { n, bucket.calls = bucket.calls, 0 }); return n }
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
// the answers to the one before. The rate is reached all the same.
func TestRateOfASlowBroker(t *testing.T) {
	for _, took := range []time.Duration{300 * time.Millisecond, 450 * time.Millisecond, 600 * time.Millisecond} {
		for _, keys := range []int{1, 5} {
			t.Run(fmt.Sprint(took, " ", keys), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					b := setup(t, func(c *Config, b *bench) {
						c.Rates, c.Bucket = Rates{Messages: 100}, &fakeBucket{}
						b.sink.latency = took
						b.store.add(to("t", 8000, b.store.now().Add(-time.Minute), func(i int) string { return fmt.Sprint("k", i%keys) })...)
					})
					b.pass(20 * time.Second)
					before := len(b.store.acked)
					b.pass(20 * time.Second)
					assert.InDelta(t, 2000, len(b.store.acked)-before, 200)
					assertKeyOrder(t, b.sink.calls(), keys)
				})
			})
		}
	}
}

// TestRateOfWhatIsNotPublished: messages that are dropped, of which there are as many, count for
// nothing.
func TestRateOfWhatIsNotPublished(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(c *Config, b *bench) {
			c.Rates, c.Bucket = Rates{Messages: 100}, &fakeBucket{}
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
