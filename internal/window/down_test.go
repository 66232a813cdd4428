package window_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/window"
)

func TestDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := window.New()
		a, b, c := join(w), join(w), join(w)
		all := a.send(1 << 20)
		require.Zero(t, b.send(9))
		require.Zero(t, c.send(9))
		require.True(t, a.Down())
		require.False(t, a.Down(), "what else was in flight fails as well")
		require.Equal(t, []int{1, 1}, []int{b.woken, c.woken}, "they learn when to ask again")
		a.gone(all)
		require.Equal(t, []int{1, 1}, []int{b.woken, c.woken}, "there is room, but the sink is down")

		_, _, retryAt := b.Reserve(9, true)
		require.InDelta(t, 100*time.Millisecond, time.Until(retryAt), float64(20*time.Millisecond))
		_, _, same := c.Reserve(9, true)
		require.Equal(t, retryAt, same)

		// One message a pause, or a few, though none of them is ever answered.
		var pauses []time.Duration
		probed := 0
		for range 12 {
			<-time.After(time.Until(retryAt))
			messages := b.send(9)
			require.Contains(t, []int{1, 8}, messages)
			probed += messages
			began := time.Now()
			_, _, retryAt = c.Reserve(9, true)
			pauses = append(pauses, retryAt.Sub(began))
			require.Greater(t, pauses[len(pauses)-1], 100*time.Millisecond)
			b.gone(messages)
			require.False(t, b.Down())
		}
		require.Less(t, pauses[0], 300*time.Millisecond)
		require.InDelta(t, 5*time.Second, pauses[11], float64(time.Second))
		require.Equal(t, 12+3*7, probed, "each fourth probe is wider")

		// Back: all that wait are woken, though nobody has freed anything.
		<-time.After(time.Until(retryAt))
		d := join(w)
		require.Zero(t, requireProbe(t, d, c, b))
		require.True(t, d.Answered(1, each, time.Millisecond))
		require.Equal(t, []int{2, 2}, []int{b.woken, c.woken})
		require.False(t, d.answered(1))
		require.Positive(t, b.send(1))
		require.Positive(t, c.send(1))
		b.leave()
		c.leave()
		requireInFlight(t, w, 0)
	})
}

// What was in flight when the sink went down may fill the window still: those that
// wait learn all the same that it is back.
func TestBackWithAFullWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := window.New()
		a, b, c := join(w), join(w), join(w)
		all := a.send(1 << 20)
		require.Zero(t, b.send(9))
		require.True(t, a.Down())
		<-time.After(time.Second)
		require.Equal(t, 1, c.send(9), "a probe")
		require.True(t, c.answered(1))
		require.Equal(t, 2, b.woken)
		require.Zero(t, b.send(9))
		a.gone(all)
		require.Positive(t, b.send(9))
		b.leave()
		requireInFlight(t, w, 0)
	})
}

// requireProbe lets a share probe, and the others wait.
func requireProbe(t *testing.T, probe *member, others ...*member) (refused int) {
	t.Helper()
	require.Equal(t, 1, probe.send(1))
	for _, m := range others {
		refused += m.send(1)
	}
	return refused
}

// Room that was granted before the sink went down is no way around the probes.
func TestDownTakesGrantsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := window.New()
		a, b := join(w), join(w)
		all := a.send(1 << 20)
		require.Zero(t, b.send(1))
		a.gone(all)
		require.Equal(t, 1, b.woken)
		require.True(t, a.Down())
		require.Zero(t, b.send(1))
		requireInFlight(t, w, 0)
	})
}

// After the sink was lost it is met with little, however much it took before.
func TestDownBeginsAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := grown(t)
		a := join(w)
		all := a.send(1 << 20)
		require.True(t, a.Down())
		a.gone(all)
		messages, bytes := w.Limit()
		require.Equal(t, []int{256, 64 << 10}, []int{messages, bytes})
	})
}

// TestDownIsForgotten: a sink is not down for ever because what had failed was cancelled.
func TestDownIsForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := window.New()
		a, b := join(w), join(w)
		fail := func() {
			require.True(t, a.Down(), "it is news")
			require.False(t, a.Down())
			require.True(t, w.IsDown())
		}
		require.Equal(t, 1, a.send(1))
		fail()
		<-time.After(time.Minute)
		require.True(t, w.IsDown(), "its answer may come")
		a.gone(1)
		require.False(t, w.IsDown(), "nobody has tried it for a minute")
		require.Equal(t, 9, b.send(9), "no probe")
		b.gone(9)

		fail()
		for range 20 { // As long as something is there to try it with.
			<-time.After(5 * time.Second)
			require.Positive(t, b.send(1))
			b.gone(1)
			require.True(t, w.IsDown())
		}
		<-time.After(10 * time.Second)
		require.True(t, w.IsDown())
		<-time.After(5 * time.Second)
		require.False(t, w.IsDown())
		require.False(t, a.answered(0), "it was up")
	})
}
