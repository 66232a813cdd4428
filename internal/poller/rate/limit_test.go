package rate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/poller/rate/ratetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBucket = errors.New("connection refused")

func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

// member are the rates of one instance, with quotas of shards.
func member(t *testing.T, bucket Bucket, all Limits, of int, shards ...int) (*Limiter, []*Quota) {
	t.Helper()
	began := time.Now()
	rs := New(all, bucket, of, func() time.Duration { return time.Since(began) }, slog.New(slog.DiscardHandler), func(string) bool { return true })
	rs.Start(t.Context())
	t.Cleanup(rs.Stop)
	quotas := make([]*Quota, len(shards))
	for i, shard := range shards {
		quotas[i] = rs.Quota(shard, func() {})
		quotas[i].Holds(true)
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
func busy(ctx context.Context, q *Quota, claimed func(n int)) {
	woken := make(chan struct{}, 1)
	q.wake = func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	}
	for wait.Sleep(ctx, time.Millisecond) {
		n := q.take("", most, 0)
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
					bucket, ctx := &ratetest.Bucket{}, t.Context()
					taken := make([]atomic.Int64, c.instances*c.busy)
					for i := range c.instances {
						_, quotas := member(t, bucket, Limits{Messages: rate}, c.of, numbers(c.of/c.instances)...)
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
					bucket.Set(func() { assert.Less(t, bucket.Calls, c.instances*110*12) })
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
				bucket := &ratetest.Bucket{}
				const instances, rounds = 4, 60
				for i := range instances {
					go func() {
						for round := range rounds {
							rs, quotas := member(t, bucket, Limits{Messages: rate}, 2*instances, 2*i, 2*i+1)
							ctx, cancel := context.WithTimeout(t.Context(), time.Duration(700+300*i)*time.Millisecond)
							for _, q := range quotas {
								go busy(ctx, q, note)
							}
							<-ctx.Done()
							cancel()
							if round%3 == 0 {
								wait.Sleep(t.Context(), time.Duration(3-i%2)*time.Second)
							}
							rs.Stop()
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

// TestBurstOfSlowClaims: where claims take long, there are no more messages in a second than that of two and of what
// came in during a claim, beside what the instances have in hand.
func TestBurstOfSlowClaims(t *testing.T) {
	const slow, instances = 400 * time.Millisecond, 2
	for _, rate := range []int{30, 1000} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var mu sync.Mutex
				at := map[time.Duration]int{} // how many messages, in steps of 10 ms
				bucket, began := &ratetest.Bucket{}, time.Now()
				for i := range instances {
					_, quotas := member(t, bucket, Limits{Messages: rate}, 4*instances, 4*i, 4*i+1, 4*i+2, 4*i+3)
					for _, q := range quotas[:3] {
						woken := make(chan struct{}, 1)
						q.wake = func() {
							select {
							case woken <- struct{}{}:
							default:
							}
						}
						go func() {
							for t.Context().Err() == nil {
								a := q.Allow("", most, 0)
								if a.Messages == 0 {
									wait.SleepOrWake(t.Context(), time.Minute, woken)
									continue
								}
								took := time.Millisecond
								if int(time.Since(began).Seconds())%10 < 6 {
									took = slow
								}
								wait.Sleep(t.Context(), took)
								q.Use(a, a.Messages, true)
								mu.Lock()
								at[time.Since(began)/(10*time.Millisecond)] += a.Messages
								mu.Unlock()
							}
						}()
					}
				}
				time.Sleep(100 * time.Second) //nolint:forbidigo // the bubble's clock
				mu.Lock()
				defer mu.Unlock()
				sum, within, most := 0, 0, 0
				for step := range time.Duration(10_000) {
					sum += at[step]
					within += at[step] - at[step-100]
					most = max(most, within)
				}
				t.Logf("%d messages, %d in a second", sum, most)
				assert.LessOrEqual(t, most, int((2+0.2+slow.Seconds())*float64(rate))+instances)
				assert.Greater(t, sum, 90*rate)
			})
		})
	}
}

// TestRateWithoutBucket: where the bucket fails or hangs, each instance has the part of the
// shards that it holds, and no shard waits for a call; afterwards they share it again.
func TestRateWithoutBucket(t *testing.T) {
	for name, fail := range map[string]func(*ratetest.Bucket){
		"fails": func(f *ratetest.Bucket) { f.Err = errBucket },
		"hangs": func(f *ratetest.Bucket) { f.Hangs = true },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				bucket, taken := &ratetest.Bucket{}, make([]atomic.Int64, 2)
				_, six := member(t, bucket, Limits{Messages: 400}, 8, numbers(6)...)
				_, two := member(t, bucket, Limits{Messages: 400}, 8, 6, 7)
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
				bucket.Set(func() { fail(bucket) })
				during(2 * time.Second)
				began := time.Now()
				for _, q := range six[1:] {
					q.give("", -1)
					q.take("", 1, 0)
					q.Holds(false)
					q.Holds(true)
				}
				assert.Zero(t, time.Since(began))
				alone := during(100 * time.Second)
				assert.InEpsilon(t, 30_000, alone[0], 0.03)
				assert.InEpsilon(t, 10_000, alone[1], 0.03)
				bucket.Set(func() { bucket.Err, bucket.Hangs = nil, false })
				during(3 * time.Second)
				both = during(100 * time.Second)
				assert.InEpsilon(t, 40_000, both[0]+both[1], 0.02)
			})
		})
	}
}

// TestRateWithFlappingBucket: a bucket that is silent again and again saves up what an instance has its part of
// meanwhile. Both together are no more than the rate.
func TestRateWithFlappingBucket(t *testing.T) {
	for _, rate := range []int{1, 30, 1000} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				bucket, taken := &ratetest.Bucket{}, make([]atomic.Int64, 2)
				for i := range taken {
					_, quotas := member(t, bucket, Limits{Messages: rate}, 4, 2*i, 2*i+1)
					for _, q := range quotas {
						go busy(t.Context(), q, adder(&taken[i]))
					}
				}
				for range 100 {
					bucket.Set(func() { bucket.Hangs = true })
					time.Sleep(300 * time.Millisecond) //nolint:forbidigo // the bubble's clock
					bucket.Set(func() { bucket.Hangs = false })
					time.Sleep(1900 * time.Millisecond) //nolint:forbidigo // the bubble's clock
				}
				got := float64(taken[0].Load() + taken[1].Load())
				assert.LessOrEqual(t, got, (220+2.2)*float64(rate)+2)
				assert.Greater(t, got, 0.75*220*float64(rate))
			})
		})
	}
}

// TestRateBackAgain: what a claim does not use, and what is not handed to the sink, may be
// claimed again; what goes back to wait a moment later.
func TestRateBackAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		bucket := &ratetest.Bucket{}
		rs, quotas := member(t, bucket, Limits{Messages: 100, Topics: map[string]int{"t": 100}}, 2, 0, 1)
		q := quotas[0]
		inHand := func() (of [2]float64) {
			time.Sleep(time.Second) //nolint:forbidigo // the bubble's clock
			rs.mu.Lock()
			defer rs.mu.Unlock()
			return [2]float64{rs.limits[""].free, rs.limits["t"].free}
		}
		require.Zero(t, q.take("", most, 0), "it has nothing at first")
		require.False(t, q.Await("t", 0))
		before := inHand()
		n := int(before[0])
		require.Equal(t, [2]float64{float64(n), float64(n)}, before)
		require.GreaterOrEqual(t, n, 10)
		bucket.Set(func() { bucket.IsDry = true })
		for range 10 {
			a := q.Allow("t", most, 0)
			require.Equal(t, n, a.Messages)
			for range 3 {
				q.Spend("t")
			}
			q.Use(a, 3, false)
			a = q.Allow("t", most, 0)
			require.Equal(t, n-3, a.Messages)
			q.Use(a, 0, false)
			q.Refund("t", false)
			q.Refund("t", false)
			a = q.Allow("t", most, 0)
			require.Equal(t, n-1, a.Messages)
			q.Use(a, 0, false)
			q.Refund("t", true)
			a = q.Allow("t", most, 0)
			require.Equal(t, n-1, a.Messages)
			q.Use(a, 0, false)
			require.Equal(t, before, inHand())
		}
	})
}

// still is a limiter of one shard whose clock stands, and the shard's quota; its goroutine does not run.
func still(now *time.Duration, wake func()) (*Limiter, *Quota) {
	rs := New(Limits{Messages: 100}, nil, 1, func() time.Duration { return *now }, slog.New(slog.DiscardHandler), func(string) bool { return true })
	q := rs.Quota(0, wake)
	q.Holds(true)
	return rs, q
}

// Nothing is asked for before half of what an instance has in hand is used.
func TestLittleIsNotAskedFor(t *testing.T) {
	t.Parallel()
	rs, q := still(new(time.Duration), nil)
	l := rs.limits[""]
	assert.False(t, l.isBusy())
	l.grant(20) // A fifth of a second's worth.
	assert.Equal(t, 10, q.take("", 10, 0))
	assert.True(t, l.isBusy())
	asked, _ := rs.missing(0)
	assert.Empty(t, asked)
	assert.Equal(t, 1, q.take("", 1, 0))
	asked, _ = rs.missing(0)
	assert.Equal(t, []message.RateRequest{{Rate: 100, Messages: 11}}, asked)
}

// What a shard has waited for is kept for it for a while.
func TestOffersLapse(t *testing.T) {
	t.Parallel()
	l, q := newLimit(10), &Quota{wake: func() {}}
	l.grant(1)
	l.wait(q, 0, 0)
	l.handOut(1, time.Second)
	l.lapse(time.Second - 1)
	assert.Equal(t, map[*Quota]offer{q: {1, time.Second}}, l.offers)
	l.lapse(time.Second)
	assert.Empty(t, l.offers)
	assert.InDelta(t, 1, l.free, 0)
}

// Who is behind waits for what it has missed, once.
func TestBehind(t *testing.T) {
	t.Parallel()
	l, q := newLimit(100), &Quota{wake: func() {}}
	take := func(now time.Duration) int {
		n := l.take(q, most, l.missed(q, now))
		if n == 0 {
			l.wait(q, 0, now)
		}
		l.handOut(1, now+keptFor)
		return n
	}
	l.grant(5)
	assert.Equal(t, 5, take(0))
	l.note(q, 0, true)
	l.grant(10)
	const later = 200 * time.Millisecond
	assert.Zero(t, take(later), "20 have come in since")
	l.grant(15)
	assert.Zero(t, take(later), "and will be 30 when they are there")
	l.grant(5)
	l.handOut(1, later+keptFor)
	assert.Equal(t, 30, take(later))
	l.note(q, later, true)
	l.grant(100)
	assert.Equal(t, 100, take(2*later), "what there is, if it is enough")
	l.note(q, 2*later, true)
	assert.Zero(t, take(3*later))
	l.grant(100)
	l.handOut(1, 3*later+keptFor)
	l.lapse(time.Minute)
	l.giveBack(99)
	assert.Equal(t, 1, take(time.Minute), "it had come too late")
}

// Without a bucket, who waits is woken as soon as the part of our shards has come in; a shard that has left has none.
func TestPartIsHandedOut(t *testing.T) {
	t.Parallel()
	now, woken := time.Duration(0), 0
	rs, q := still(&now, func() { woken++ })
	assert.False(t, q.Await("", 0))
	now = time.Second
	rs.ask()
	assert.Equal(t, 1, woken)
	for n := 1; n > 0; {
		n = q.take("", most, 0) // What was kept, and then the rest; then it waits again.
	}
	rs.granted([]int{100 + 20}, []*limit{rs.limits[""]})
	assert.Equal(t, 2, woken, "of what the bucket grants, too, once what came in is paid")
	assert.Zero(t, rs.limits[""].owed)
	assert.InDelta(t, 1, rs.part(), 0)
	q.Leave()
	assert.Zero(t, rs.part())
}
