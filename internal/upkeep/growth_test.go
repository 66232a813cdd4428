package upkeep_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/upkeep"
)

func TestFullIn(t *testing.T) {
	t.Parallel()
	var g upkeep.Growth
	assert.Nil(t, g.Room())
	now := time.Now()
	g.Add(now, 1000, 10_000)
	assert.InDelta(t, math.Inf(1), g.FullIn(), 0, "nothing is known yet")
	assert.Equal(t, &inspect.Room{Used: 1000, Limit: 10_000}, g.Room())
	g.Add(now.Add(10*time.Second), 2000, 10_000)
	assert.InDelta(t, 80, g.FullIn(), 0.1)
	assert.WithinDuration(t, now.Add(90*time.Second), g.Room().FullAt, time.Millisecond)
	g.Add(now.Add(10*time.Second), 2000, 1<<60)
	assert.Zero(t, g.Room().FullAt, "more than a day away")
	g.Add(now.Add(10*time.Second), 2000, 2001+int64(upkeep.GrowthAhead)*1000)
	assert.Zero(t, g.Room().FullAt, "too far away for what was seen")
	g.Add(now.Add(10*time.Second), 2000, 2000+int64(upkeep.GrowthAhead)*1000)
	assert.Equal(t, now.Add(10*time.Second*(1+upkeep.GrowthAhead)), g.Room().FullAt)
	g.Add(now.Add(15*time.Second), 10_001, 10_000)
	assert.Zero(t, g.FullIn())
	assert.Equal(t, now.Add(15*time.Second), g.Room().FullAt, "it is full")
	g.Add(now.Add(20*time.Second), 900, 10_000)
	assert.InDelta(t, math.Inf(1), g.FullIn(), 0, "it shrinks")
	g.Forget()
	assert.Nil(t, g.Room())
}

// TestOneBurstIsNoTrend: what came once in the last ten minutes, at whatever time of them,
// does not fill the queue; what comes again and again does.
func TestOneBurstIsNoTrend(t *testing.T) {
	t.Parallel()
	const limit, steps = 10_000_000, 60
	now := time.Now()
	after := func(used func(step int) int64) float64 {
		var g upkeep.Growth
		for i := range steps + 1 {
			g.Add(now.Add(time.Duration(i)*10*time.Second), used(i), limit)
		}
		return g.FullIn()
	}
	for burst := range steps {
		assert.InDelta(t, math.Inf(1), after(func(i int) int64 {
			if i > burst {
				return 400_000
			}
			return 0
		}), 0, "a burst at step %d", burst)
	}
	steady := after(func(i int) int64 { return int64(i) * 10_000 })
	assert.InDelta(t, (limit-steps*10_000)/1000, steady, 1)
	waves := after(func(i int) int64 { return int64(i/6) * 60_000 }) // One a minute, as much.
	assert.InEpsilon(t, steady, waves, 0.1)
}

// TestWhatWasLongAgoDoesNotCount: what has grown for ten minutes and then stood still for ten
// grows no more.
func TestWhatWasLongAgoDoesNotCount(t *testing.T) {
	t.Parallel()
	var g upkeep.Growth
	now := time.Now()
	for i := range int64(120) {
		g.Add(now.Add(time.Duration(i)*10*time.Second), min(i, 60)*1000, 1_000_000)
		if i == 60 {
			assert.InDelta(t, 9400, g.FullIn(), 1)
		}
	}
	assert.InDelta(t, math.Inf(1), g.FullIn(), 0)
}
