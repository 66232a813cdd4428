package store_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// taken asks for so much of each rate at once.
func taken(t *testing.T, q *store.Queue, asked ...message.RateRequest) []int {
	t.Helper()
	granted, err := q.Members().TakeRates(t.Context(), asked)
	require.NoError(t, err)
	require.Len(t, granted, len(asked))
	return granted
}

func ofQueue(rate, messages int) message.RateRequest {
	return message.RateRequest{Rate: rate, Messages: messages}
}

// TestTakeRates: what has come in since the last call is granted, a second's worth at the
// most; what is given back is there again; a rate does not know another.
func TestTakeRates(t *testing.T) {
	t.Parallel()
	now := time.Now()
	c := newClocked(t, now)
	q := storetest.New(t, connect(t, "redis://"+c.Addr()), 1)
	pass := func(d time.Duration) { now = now.Add(d); c.set(now) }
	require.Equal(t, []int{0}, taken(t, q, ofQueue(100, 50)), "it begins empty")
	pass(100 * time.Millisecond)
	require.Equal(t, []int{10}, taken(t, q, ofQueue(100, 50)))
	pass(time.Hour)
	require.Equal(t, []int{70}, taken(t, q, ofQueue(100, 70)))
	require.Equal(t, []int{30}, taken(t, q, ofQueue(100, 70)), "a second's worth in all")
	require.Equal(t, []int{-20}, taken(t, q, ofQueue(100, -20)))
	require.Equal(t, []int{20}, taken(t, q, ofQueue(100, 70)))
	pass(time.Hour)
	require.Equal(t, []int{-20}, taken(t, q, ofQueue(100, -20)))
	require.Equal(t, []int{100}, taken(t, q, ofQueue(100, 500)), "what is given back is not saved beyond that")
	a, b := message.RateRequest{Topic: "a", Rate: 1, Messages: 1}, message.RateRequest{Topic: "b", Rate: 1000, Messages: 1000}
	require.Equal(t, []int{0, 0}, taken(t, q, a, b))
	pass(999 * time.Millisecond)
	require.Equal(t, []int{0, 999}, taken(t, q, a, b))
	pass(time.Millisecond)
	require.Equal(t, []int{1, 1}, taken(t, q, a, b))
	many := make([]message.RateRequest, 1200)
	for i := range many {
		many[i] = message.RateRequest{Topic: fmt.Sprint("t", i), Rate: i + 1, Messages: 5000}
	}
	taken(t, q, many...)
	pass(time.Hour)
	for i, n := range taken(t, q, many...) {
		require.Equal(t, i+1, n)
	}
}

// TestRateUnderClocks takes as much as there is, of any rate, while the clock goes on, and is
// set forward and back. Each time that it is set forward, a second's worth may come in.
func TestRateUnderClocks(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for _, rate := range []int{1, 3, 7, 100, 640, 1_000_000} {
		now := time.Now()
		c := newClocked(t, now)
		q := storetest.New(t, connect(t, "redis://"+c.Addr()), 1)
		got, jumps, passed := taken(t, q, ofQueue(rate, rate))[0], 0, time.Duration(0)
		for i := range 600 {
			d := time.Duration(random.IntN(200)) * time.Millisecond
			passed += d
			now = now.Add(d)
			switch i % 100 {
			case 20:
				now = now.Add(-time.Hour)
			case 60:
				now = now.Add(time.Hour)
				jumps++
			}
			c.set(now)
			got += taken(t, q, ofQueue(rate, 2*rate))[0]
		}
		most := float64(rate) * (passed.Seconds() + 1.2*float64(jumps))
		require.LessOrEqual(t, float64(got), most, "rate %d", rate)
		require.GreaterOrEqual(t, float64(got), float64(rate)*(passed.Seconds()-8), "rate %d: each time that it is set back, less than a second is lost", rate)
	}
}

// TestRateChanges: the time that is saved up counts by the rate that is asked for.
func TestRateChanges(t *testing.T) {
	t.Parallel()
	now := time.Now()
	c := newClocked(t, now)
	q := storetest.New(t, connect(t, "redis://"+c.Addr()), 1)
	taken(t, q, ofQueue(100, 1))
	c.set(now.Add(500 * time.Millisecond))
	require.Equal(t, []int{25}, taken(t, q, ofQueue(100, 25)))
	require.Equal(t, []int{250}, taken(t, q, ofQueue(1000, 1000)))
	require.Equal(t, []int{0}, taken(t, q, ofQueue(100, 1)))
}
