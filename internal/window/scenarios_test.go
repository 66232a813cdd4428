package window_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// publishTimeout is the sinks' default: nothing may take longer.
const publishTimeout = 10 * time.Second

// mostInFlight is the largest limit, of messages and of bytes.
const mostMessages, mostBytes = 1 << 16, 64 << 20

// leastMessages and leastBytes are the least limit.
const leastMessages, leastBytes = 256, 64 << 10

func TestLinks(t *testing.T) {
	t.Parallel()
	for _, latency := range []time.Duration{time.Millisecond, 20 * time.Millisecond, 500 * time.Millisecond} {
		for _, rate := range []float64{100e3, 400e3, 2e6, 200e6} {
			for _, size := range []int{600, 256} {
				t.Run(fmt.Sprintf("%.0f kBps, %v, %d B", rate/1e3, latency, size), func(t *testing.T) {
					t.Parallel()
					from, lasts := 10, 40*time.Second
					switch { // Millions of messages take their time.
					case rate == 200e6 && latency > 100*time.Millisecond:
						lasts = 13 * time.Second
					case rate == 200e6:
						from, lasts = 1, 2*time.Second
					}
					s := simulate(t, scenario{rate: constant(rate), size: fixed(size), latency: always(latency), lasts: lasts})
					s.carries(t, from, len(s.seconds), min(rate, min(float64(mostMessages*size), mostBytes)/latency.Seconds()))
				})
			}
		}
	}
}

func TestLinksWithMixedSizes(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{100e3, 400e3, 2e6} {
		t.Run(fmt.Sprintf("%.0f kBps", rate/1e3), func(t *testing.T) {
			t.Parallel()
			s := simulate(t, scenario{rate: constant(rate), latency: always(5 * time.Millisecond), size: func(n int) int {
				return 100 << (n * 7919 % 97 % 8) // 100 B to 12,800 B
			}})
			s.carries(t, 10, len(s.seconds), rate)
		})
	}
}

func TestLinkForAnHour(t *testing.T) {
	t.Parallel()
	s := simulate(t, scenario{rate: constant(100e3), size: fixed(600), latency: always(20 * time.Millisecond), lasts: time.Hour})
	s.carries(t, 10, len(s.seconds), 100e3)
	first := s.between(60, 120).meanQueue()
	for minute := 2; minute < 60; minute++ {
		at := s.between(60*minute, 60*minute+60)
		require.InDelta(t, first, at.meanQueue(), float64(60*time.Millisecond), "minute %d", minute)
	}
}

func TestBrokers(t *testing.T) {
	t.Parallel()
	for _, perSecond := range []int{25_000, 100_000} {
		for _, shares := range []int{1, 8, 64, 256} {
			t.Run(fmt.Sprintf("%d/s, %d shares", perSecond, shares), func(t *testing.T) {
				t.Parallel()
				s := simulate(t, scenario{
					shares: shares, rate: constant(200e6), size: fixed(256), latency: always(time.Millisecond),
					service: time.Second/time.Duration(perSecond) - 1280*time.Nanosecond, lasts: 6 * time.Second,
				})
				s.carries(t, 3, len(s.seconds), 256*float64(perSecond))
				sum := s.between(3, len(s.seconds))
				switch {
				case shares <= 8:
					require.Greater(t, sum.acks/sum.claims, 100, "messages of a claim")
				default: // More would make the others wait for their turn.
					require.GreaterOrEqual(t, sum.acks/sum.claims, 15, "messages of a claim")
				}
				s.isFair(t)
			})
		}
	}
}

// TestQueueBesideABusyOne: what a busy queue has in flight does not hold up another one for long, and costs it little.
func TestQueueBesideABusyOne(t *testing.T) {
	t.Parallel()
	for _, perSecond := range []int{10_000, 25_000, 100_000} {
		for _, beside := range []float64{1000, 0.5} {
			t.Run(fmt.Sprintf("%d/s and %v/s", perSecond, beside), func(t *testing.T) {
				t.Parallel()
				s := simulate(t, scenario{
					beside: beside, rate: constant(200e6), size: fixed(256), latency: always(time.Millisecond),
					service: time.Second/time.Duration(perSecond) - 1280*time.Nanosecond, lasts: 20 * time.Second,
				})
				s.carries(t, 5, len(s.seconds), 256*(float64(perSecond)-beside))
				took := s.beside[len(s.beside)/4:]
				slices.Sort(took)
				t.Logf("the other queue: half within %v, 99 %% within %v, all within %v", took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
				inherent := time.Second * leastMessages / time.Duration(perSecond) // What may always be in flight.
				require.Less(t, took[len(took)*99/100], inherent+25*time.Millisecond)
			})
		}
	}
}

func TestBrokerPauses(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{100e3, 400e3, 2e6, 20e6} {
		t.Run(fmt.Sprintf("%.0f kBps", rate/1e3), func(t *testing.T) {
			t.Parallel()
			const from, until = 20 * time.Second, 28 * time.Second
			s := simulate(t, scenario{
				rate: constant(rate), size: fixed(600), latency: always(20 * time.Millisecond),
				paused: func(at time.Duration) time.Duration {
					if at >= from && at < until {
						return until
					}
					return 0
				},
			})
			s.carries(t, 10, 20, rate)
			s.carries(t, 30, len(s.seconds), rate)
		})
	}
}

func TestLargeMessageAmongSmallOnes(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{100e3, 400e3, 2e6} {
		t.Run(fmt.Sprintf("%.0f kBps", rate/1e3), func(t *testing.T) {
			t.Parallel()
			large := int(20 * rate / 600)
			s := simulate(t, scenario{rate: constant(rate), latency: always(time.Millisecond), size: func(n int) int {
				if n == large {
					return 900 << 10
				}
				return 600
			}})
			s.carries(t, 10, len(s.seconds)-1, rate)
		})
	}
}

func TestLargerMessagesAllAtOnce(t *testing.T) {
	t.Parallel()
	s := simulate(t, scenario{rate: constant(2e6), latency: always(20 * time.Millisecond), size: func(n int) int {
		if n < 66_000 || n > 68_000 {
			return 600
		}
		return 20_000
	}})
	s.carries(t, 10, 20, 2e6)
	s.carries(t, 22, 38, 2e6)
	require.Less(t, s.between(5, len(s.seconds)).slowest, time.Second, "the bytes bind at once")
}

func TestLinkFallsAndRises(t *testing.T) {
	t.Parallel()
	for _, latency := range []time.Duration{time.Millisecond, 20 * time.Millisecond, 500 * time.Millisecond} {
		t.Run(latency.String(), func(t *testing.T) {
			t.Parallel()
			s := simulate(t, scenario{size: fixed(600), latency: always(latency), lasts: 90 * time.Second, rate: func(at time.Duration) float64 {
				if at >= 20*time.Second && at < 50*time.Second {
					return 100e3
				}
				return 2e6
			}})
			s.keepsUp(t, 12, 20, 2e6)
			s.keepsUp(t, 36, 50, 100e3)
			s.keepsUp(t, 57, 90, 2e6)
			// What is in flight when the link falls no limit can call back: latency and
			// queue (the target, and a little) at the old rate, and twenty times as long at the new one.
			inherent := 20 * (latency + 80*time.Millisecond)
			require.Less(t, s.between(0, len(s.seconds)).slowest, inherent+time.Second)
		})
	}
}

// A broker whose own time varies far more than the target must not pass for one
// with a queue: the limit would shrink until next to nothing is in flight.
func TestLatencyVaries(t *testing.T) {
	t.Parallel()
	for _, beside := range []float64{0, 50} {
		t.Run(fmt.Sprintf("beside %.0f", beside), func(t *testing.T) {
			t.Parallel()
			s := simulate(t, scenario{
				beside: beside, rate: constant(2e6), size: fixed(600), lasts: 2 * time.Minute,
				latency: func(at time.Duration) time.Duration {
					return 300*time.Millisecond + time.Duration(250*math.Sin(at.Seconds()*7)*float64(time.Millisecond))
				},
			})
			// With so much noise the queue can hardly be seen. What counts is that the limit
			// does not fall to nothing: one message at a time would be 3/1000 of this.
			sum := s.between(20, len(s.seconds))
			require.Greater(t, float64(sum.bytes)/float64(len(s.seconds)-20), 0.5*2e6)
			require.Less(t, sum.slowest, 3*time.Second)
		})
	}
}

// A long way is filled though another queue uses it, too, also where claims take long.
func TestLongWayIsShared(t *testing.T) {
	t.Parallel()
	s := simulate(t, scenario{beside: 50, rate: constant(2e6), size: fixed(600), latency: always(500 * time.Millisecond), claimTakes: always(10 * time.Millisecond)})
	s.carries(t, 10, len(s.seconds), 2e6)
}

// Where Redis is far away or busy, most of what the window has room for is on its way from there: a fast broker
// is not to wait for that.
func TestClaimsTakeLong(t *testing.T) {
	t.Parallel()
	for _, takes := range []time.Duration{10 * time.Millisecond, 50 * time.Millisecond} {
		for _, perSecond := range []int{10_000, 100_000} {
			t.Run(fmt.Sprintf("%v, %d/s", takes, perSecond), func(t *testing.T) {
				t.Parallel()
				s := simulate(t, scenario{
					rate: constant(200e6), size: fixed(256), latency: always(time.Millisecond), claimTakes: always(takes), lasts: 20 * time.Second,
					service: time.Second/time.Duration(perSecond) - 1280*time.Nanosecond,
				})
				most := min(float64(perSecond), 8*claimMost/(takes+2*tick).Seconds()) // Each share has one claim at a time.
				s.carries(t, 10, len(s.seconds), 256*most)
			})
		}
	}
}

// A broker that becomes slower for good, without a queue, is measured again.
func TestLatencyRises(t *testing.T) {
	t.Parallel()
	s := simulate(t, scenario{
		rate: constant(2e6), size: fixed(600), lasts: 2 * time.Minute,
		latency: func(at time.Duration) time.Duration {
			if at < 20*time.Second {
				return 2 * time.Millisecond
			}
			return 400 * time.Millisecond
		},
	})
	s.carries(t, 35, len(s.seconds), 2e6)
}

// Where the machine is busy, acknowledgements and claims are late however little is
// in flight. The window must not take that for a queue of its own, and hold back
// messages that are few.
func TestBusyMachine(t *testing.T) {
	t.Parallel()
	const from, until = 20 * time.Second, 50 * time.Second
	isBusy := func(at time.Duration) bool { return at >= from && at < until }
	s := simulate(t, scenario{
		rate: constant(200e6), size: fixed(456), offered: 450, lasts: 70 * time.Second,
		latency: func(at time.Duration) time.Duration {
			if isBusy(at) {
				return 180 * time.Millisecond
			}
			return time.Millisecond
		},
		claimTakes: func(at time.Duration) time.Duration {
			if isBusy(at) {
				return 60 * time.Millisecond
			}
			return time.Millisecond
		},
	})
	for second := 1; second < len(s.seconds); second++ {
		require.Less(t, s.seconds[second].slowest, 500*time.Millisecond, "second %d", second)
	}
}

// carries checks the throughput in bytes a second and how long messages took.
func (s *simulation) carries(t *testing.T, from, to int, rate float64) {
	t.Helper()
	s.keepsUp(t, from, to, rate)
	require.Less(t, s.between(0, len(s.seconds)).slowest, publishTimeout)
}

func (s *simulation) keepsUp(t *testing.T, from, to int, rate float64) {
	t.Helper()
	sum := s.between(from, to)
	require.GreaterOrEqual(t, float64(sum.bytes)/float64(to-from)/rate, 0.95, "throughput")
	// What may always be in flight, and few messages a share on top of it, is a queue
	// of its own where the link is very slow.
	least := time.Duration(2 * leastBytes / rate * float64(time.Second))
	require.LessOrEqual(t, sum.meanQueue(), 120*time.Millisecond+least, "queueing")
}

// isFair checks that all shares had about the same.
func (s *simulation) isFair(t *testing.T) {
	t.Helper()
	least, most := math.MaxInt, 0
	for _, shard := range s.all {
		least, most = min(least, shard.acks), max(most, shard.acks)
	}
	require.Less(t, float64(most-least), 0.1*float64(most)+2*claimMost, "least %d, most %d", least, most)
}
