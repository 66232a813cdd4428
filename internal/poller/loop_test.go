package poller

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// bubble runs a test on a clock of its own.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

func TestPublishesAtTheDueTimeByRedisClock(t *testing.T) {
	for _, skew := range []time.Duration{0, 37 * time.Minute, -time.Hour, 333 * time.Microsecond} {
		t.Run(skew.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := setup(t, func(_ *Config, b *bench) {
					b.store.skew = skew
					for i := range 20 {
						at := b.store.now().Add(time.Duration(i*i*37) * time.Millisecond)
						b.store.add(due(fmt.Sprint("m", i), at))
					}
				})
				b.pass(20 * time.Second)
				calls := b.sink.calls()
				require.Len(t, calls, 20)
				b.observer.read(func() {
					for _, lateness := range b.observer.latenesses {
						assert.GreaterOrEqual(t, lateness, time.Duration(0))
						assert.LessOrEqual(t, lateness, 2*time.Millisecond)
					}
				})
				assert.LessOrEqual(t, len(b.store.requests), 20+20, "no busy looking")
			})
		})
	}
}

func TestIdleShardLooksOncePerMaxSleep(t *testing.T) {
	for name, waiting := range map[string]time.Duration{"empty": 0, "far future": time.Hour} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := setup(t, func(_ *Config, b *bench) {
					if waiting > 0 {
						b.store.add(due("later", b.store.now().Add(waiting)))
					}
				})
				b.pass(time.Minute)
				assert.InDelta(t, 31, len(b.store.requests), 1)
				assert.Empty(t, b.store.settles)
				assert.Empty(t, b.store.reclaims)
				assert.NoError(t, b.Live())
			})
		})
	}
}

func TestHintLooksOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t)
		b.pass(100 * time.Millisecond)
		b.store.add(due("soon", b.store.now().Add(500*time.Millisecond)))
		for range 100 {
			b.Wake(0)
		}
		b.Wake(7) // Not ours.
		b.pass(499 * time.Millisecond)
		assert.Len(t, b.store.takes(), 1, "the hint's")
		assert.Empty(t, b.sink.calls())
		b.pass(2 * time.Millisecond)
		assert.Len(t, b.sink.calls(), 1)
		assert.Len(t, b.store.takes(), 2)
	})
}

func TestHintIsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t)
		b.pass(100 * time.Millisecond)
		b.store.add(due("now", b.store.now()))
		b.pass(2 * time.Second)
		assert.Len(t, b.sink.calls(), 1, "the timed look found it")
	})
}

func TestDrainsABacklogAtOnceAndInOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(c *Config, b *bench) {
			c.Claims.Batch = 10
			b.store.add(many(205, b.store.now())...)
		})
		b.pass(0)
		assert.Len(t, b.store.acked, 205)
		assert.Less(t, len(b.store.takes()), 30)
		assert.Zero(t, b.observer.inFlight.Load())
	})
}

// TestInFlightIsBoundedAndTheLeaseRenewed checks I9.
func TestInFlightIsBoundedAndTheLeaseRenewed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(c *Config, b *bench) {
			c.Claims.Batch = 2 // As much as the window lets through at first.
			b.sink.latency = 9 * time.Second
			b.store.add(many(20, b.store.now())...)
		})
		b.pass(8900 * time.Millisecond)
		assert.Equal(t, 4, b.sink.most)
		assert.Equal(t, int64(8), b.observer.inFlight.Load())
		assert.Len(t, b.store.takes(), 4)
		b.store.read(func() {
			last := b.store.requests[len(b.store.requests)-1]
			assert.Zero(t, last.Max)
			assert.Len(t, last.Live, 4)
			assert.Len(t, b.store.requests, 1+4+4, "a renewal every two seconds")
		})
		b.pass(time.Minute)
		assert.Len(t, b.store.acked, 20)
		assert.Equal(t, 4, b.sink.most)
	})
}

func TestPublishedMessageHasItsAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		attempts := make(chan int, 1)
		b := setup(t)
		b.sink.set(func(_ ctx, batch []message.Message) []outcome {
			attempts <- batch[0].Attempt
			return all(batch, acked)
		})
		m := due("m", b.store.now())
		m.Attempts.Begun = 3
		b.store.add(m)
		b.Wake(0)
		assert.Equal(t, 4, <-attempts)
	})
}

func TestLatenessCountsFromScheduling(t *testing.T) {
	t.Parallel()
	now := time.Now()
	m := message.Message{DueAt: now.Add(-time.Hour), ScheduledAt: now.Add(-time.Second)}
	assert.Equal(t, time.Second, lateness(&m, now))
	m.DueAt = now.Add(time.Millisecond)
	assert.Zero(t, lateness(&m, now), "the clock is an estimate")
}
