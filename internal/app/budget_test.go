package app

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/testenv"
)

func TestFullIn(t *testing.T) {
	t.Parallel()
	var g growth
	now := time.Now()
	g.add(now, 1000)
	assert.InDelta(t, math.Inf(1), g.fullIn(10_000), 0, "nothing is known yet")
	g.add(now.Add(10*time.Second), 2000)
	assert.InDelta(t, 80, g.fullIn(10_000), 0.1)
	g.add(now.Add(15*time.Second), 10_001)
	assert.Zero(t, g.fullIn(10_000))
	g.add(now.Add(20*time.Second), 900)
	assert.InDelta(t, math.Inf(1), g.fullIn(10_000), 0, "it shrinks")
	for i := range 1000 { // What was long ago does not count.
		g.add(now.Add(time.Minute+time.Duration(i)*time.Second), 900)
	}
	assert.LessOrEqual(t, len(g.samples), int(growthOver/growthEvery)+2)
}

// TestBudget: producers are refused beyond the budget, and no more when it is gone.
func TestBudget(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testenv.Redis(t), 2)
	f.more = ", budget: {bytes: 64KiB}"
	f.join("a", f.redis)
	f.held(20*time.Second, "a")
	add := func() error {
		_, err := f.client.Schedule(t.Context(), delay.Message{Topic: f.topic, Body: make([]byte, 1000)}, delay.After(time.Hour))
		return err
	}
	var err error
	require.Eventually(t, func() bool { err = add(); return err != nil }, time.Minute, time.Millisecond)
	require.ErrorIs(t, err, delay.ErrFull)
	require.Eventually(t, func() bool { // The room that is left is shared anew each second.
		_ = add()
		return len(f.logs["a"].of("budget is used up")) > 0
	}, time.Minute, 10*time.Millisecond)
	f.leave("a")
	require.ErrorIs(t, add(), delay.ErrFull, "also while no bridge runs")
	f.more = ""
	f.join("b", f.redis)
	require.Eventually(t, func() bool { return add() == nil }, time.Minute, 10*time.Millisecond)
}
