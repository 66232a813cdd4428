package poller

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

func TestDrainOfAnIdleShardIsImmediate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t)
		b.pass(500 * time.Millisecond)
		began := time.Now()
		require.NoError(t, b.stop(t, 20*time.Second))
		assert.Zero(t, time.Since(began))
		assert.Equal(t, 1, b.store.handOvers)
		assert.Empty(t, b.store.holder)
		require.NoError(t, b.stop(t, 20*time.Second), "twice")
		assert.Equal(t, 1, b.store.handOvers)
		b.Wake(0)
		assert.NoError(t, b.Live())
		_, look := b.longestAgo()
		assert.Zero(t, look)
	})
}

// TestDrainWaitsForAcknowledgements checks I13.
func TestDrainWaitsForAcknowledgements(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(c *Config, b *bench) {
			c.Claims.Batch = 1
			b.sink.latency = 8 * time.Second
			b.store.add(keyed("1", "k", b.store.now()), keyed("2", "k", b.store.now()), due("3", b.store.now()))
			b.store.add(due("4", b.store.now().Add(2*time.Second)))
		})
		b.pass(time.Second)
		began := time.Now()
		require.NoError(t, b.stop(t, 20*time.Second))
		assert.Equal(t, 7*time.Second, time.Since(began))
		assert.ElementsMatch(t, []string{"1", "3"}, b.store.acked)
		require.Len(t, b.store.waiting, 2, "2 was released, 4 never claimed")
		assert.Zero(t, b.store.waiting[0].Attempts)
		assert.Equal(t, 1, b.store.handOvers)
		last := b.store.requests[len(b.store.requests)-1]
		assert.Zero(t, last.Max)
		assert.LessOrEqual(t, time.Since(last.at), 2*time.Second, "the lease was kept")
	})
}

func TestDrainCutsPublishingBeforeItsBudgetEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(_ *Config, b *bench) {
			b.sink.latency = time.Hour
			b.store.add(due("m", b.store.now()))
		})
		b.pass(time.Second)
		began := time.Now()
		require.NoError(t, b.stop(t, 4*time.Second))
		assert.Equal(t, 3*time.Second, time.Since(began))
		require.Len(t, b.store.waiting, 1)
		assert.Equal(t, message.Attempts{Begun: 1, MaybeOut: 1}, b.store.waiting[0].Attempts)
		assert.Equal(t, 1, b.store.handOvers)
	})
}

func TestDrainDuringAClaimReleasesWhatItTook(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(_ *Config, b *bench) {
			b.store.afterClaim = func(message.ClaimRequest) error {
				wait.Sleep(t.Context(), time.Second)
				return nil
			}
			b.store.add(due("m", b.store.now()))
		})
		b.pass(500 * time.Millisecond)
		require.NoError(t, b.stop(t, 20*time.Second))
		assert.Empty(t, b.sink.calls())
		assert.Len(t, b.store.waiting, 1)
		assert.Empty(t, b.store.claims)
		assert.Equal(t, 1, b.store.handOvers)
	})
}

func TestDrainAsksOnceMoreForALostClaim(t *testing.T) {
	bubble(t, func(t *testing.T) {
		lost := 0
		b := setup(t, func(_ *Config, b *bench) {
			b.store.afterClaim = func(message.ClaimRequest) error {
				if lost++; lost <= 8 {
					return errRedis
				}
				return nil
			}
			b.store.add(due("m", b.store.now()))
		})
		for lost < 8 {
			b.pass(100 * time.Millisecond)
		}
		require.NoError(t, b.stop(t, 20*time.Second))
		assert.Len(t, b.store.waiting, 1)
		assert.Empty(t, b.store.claims)
	})
}

func TestDrainWithoutRedisIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		down := false
		b := setup(t, func(_ *Config, b *bench) {
			fail := func() error {
				if down {
					return errRedis
				}
				return nil
			}
			b.store.beforeClaim = func(message.ClaimRequest) error { return fail() }
			b.store.beforeSettle = func(message.Settlement) error { return fail() }
			b.sink.latency = time.Second
			b.store.add(due("m", b.store.now()))
		})
		b.pass(500 * time.Millisecond)
		down = true
		b.pass(3 * time.Second)
		began := time.Now()
		require.NoError(t, b.stop(t, 10*time.Second))
		assert.LessOrEqual(t, time.Since(began), 10*time.Second)
		assert.Len(t, b.store.claims, 1, "left to be reclaimed")
	})
}

func TestDrainWithASinkThatHangsReturns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		release := make(chan struct{})
		b := setup(t, func(_ *Config, b *bench) {
			b.sink.behave = func(_ context.Context, batch []message.Message) []outcome {
				<-release
				return all(batch, acked)
			}
			b.store.add(due("m", b.store.now()))
		})
		b.pass(time.Second)
		began := time.Now()
		require.ErrorIs(t, b.stop(t, 5*time.Second), context.DeadlineExceeded)
		assert.Equal(t, 5*time.Second, time.Since(began))
		close(release)
		require.NoError(t, b.stop(t, 5*time.Second), "ended now")
	})
}

func TestDrainWhileTheSinkIsDownOrTheShardIsHeld(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(_ *Config, b *bench) {
			b.sink.behave = same(sinks.Failed(sinks.Unavailable, sinks.ReasonConnection, errBroker))
			b.store.add(many(100, b.store.now())...)
		})
		b.pass(20 * time.Second)
		began := time.Now()
		require.NoError(t, b.stop(t, 20*time.Second))
		assert.Zero(t, time.Since(began))
		assert.Len(t, b.store.waiting, 100)
		held := setup(t, func(_ *Config, b *bench) {
			b.store.holder, b.store.until = "other", b.store.now().Add(time.Hour)
		})
		held.pass(time.Second)
		require.NoError(t, held.stop(t, 20*time.Second))
		assert.Equal(t, "other", held.store.holder)
		assert.Zero(t, time.Since(began)-time.Second)
	})
}

func TestCancelledStopReturnsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(_ *Config, b *bench) {
			b.sink.latency = time.Hour
			b.store.add(due("m", b.store.now()))
		})
		b.pass(time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		_ = b.Stop(ctx)
		assert.Zero(t, time.Since(began))
		b.pass(0)
		assert.Zero(t, b.observer.inFlight.Load(), "everything has ended")
	})
}
