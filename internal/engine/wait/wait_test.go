package wait_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

func TestSleep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		require.True(t, wait.Sleep(t.Context(), time.Minute))
		require.Equal(t, time.Minute, time.Since(began))
		require.True(t, wait.Sleep(t.Context(), -1))

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		require.False(t, wait.Sleep(ctx, time.Minute))
		require.Equal(t, time.Second, time.Since(began))
		require.False(t, wait.Sleep(ctx, 0), "ctx has ended")
	})
}

func TestSleepOrWake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		wake := make(chan struct{}, 1)
		began := time.Now()
		require.True(t, wait.SleepOrWake(t.Context(), time.Minute, wake))
		require.Equal(t, time.Minute, time.Since(began))
		wake <- struct{}{}
		require.True(t, wait.SleepOrWake(t.Context(), time.Minute, wake))
		require.Equal(t, time.Minute, time.Since(began), "it was woken")

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.False(t, wait.SleepOrWake(ctx, time.Minute, wake))
		require.Equal(t, time.Minute+time.Second, time.Since(began))
	})
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	b := wait.Backoff{Initial: 100 * time.Millisecond, Limit: time.Second}
	for range 2 {
		for _, nominal := range []time.Duration{100, 200, 400, 800, 1000, 1000} {
			pause := b.Next()
			require.InDelta(t, nominal*time.Millisecond, pause, float64(nominal*time.Millisecond)/5)
			require.LessOrEqual(t, pause, b.Limit)
		}
		require.Equal(t, 6, b.Failures())
		b.Reset()
	}
	require.Zero(t, new(wait.Backoff).Next())
	require.Equal(t, time.Second, wait.Exponential(time.Second, time.Second, 1<<20, 0.999))
}
