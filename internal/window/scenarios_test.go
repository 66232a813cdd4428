package window_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// publishTimeout is the sinks' default: nothing may take longer.
const publishTimeout = 10 * time.Second

func TestLinks(t *testing.T) {
	t.Parallel()
	for _, latency := range []time.Duration{time.Millisecond, 20 * time.Millisecond, 500 * time.Millisecond} {
		for _, rate := range []float64{100e3, 400e3, 2e6, 200e6} {
			for _, size := range []int{600, 256} {
				t.Run(fmt.Sprintf("%.0f kBps/%v/%d B", rate/1e3, latency, size), func(t *testing.T) {
					t.Parallel()
					lasts := 40 * time.Second
					if rate == 200e6 {
						lasts = 20 * time.Second
					}
					s := simulate(t, scenario{rate: constant(rate), size: fixed(size), latency: latency, lasts: lasts})
					// No more than so much is ever in flight.
					reachable := min(rate, min(float64(1<<16*size), 64<<20)/latency.Seconds())
					s.carries(t, 10, len(s.seconds), reachable)
				})
			}
		}
	}
}

// carries checks the throughput in bytes a second and how long messages took.
func (s *simulation) carries(t *testing.T, from, to int, rate float64) {
	t.Helper()
	sum := s.between(from, to)
	require.GreaterOrEqual(t, float64(sum.bytes)/float64(to-from)/rate, 0.95, "throughput")
	require.LessOrEqual(t, sum.meanQueue(), 160*time.Millisecond, "queueing")
	require.Less(t, s.between(0, len(s.seconds)).slowest, publishTimeout)
}
