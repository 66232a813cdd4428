package api

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/delaybridge/delaybridge/internal/operate"
)

// TestPoints have what was counted between two marks, and nothing where that is not known.
func TestPoints(t *testing.T) {
	t.Parallel()
	now := time.Now()
	at := func(in time.Duration, scheduled int64, latenesses uint64) mark {
		return mark{
			at: now.Add(in), life: "a", counters: map[string]int64{"scheduled": scheduled, "published": 2 * scheduled},
			lateness: operate.Histogram{Bounds: []float64{1}, Counts: []uint64{latenesses, 0}},
		}
	}
	first, second := at(0, 10, 4), at(10*time.Second, 110, 8)
	assert.Equal(t, Point{At: operate.Stamp(second.at), Over: 10, Scheduled: new(10.0), Published: new(20.0), P50: new(0.5), P99: new(0.99)}, second.since(&first))
	idle := at(20*time.Second, 110, 8)
	assert.Equal(t, Point{At: operate.Stamp(idle.at), Over: 10, Scheduled: new(0.0), Published: new(0.0)}, idle.since(&second), "nothing was scheduled; how late nothing was, nobody knows")
	for name, later := range map[string]mark{
		"Redis did not tell":  {at: now.Add(time.Minute)},
		"it was made again":   {at: now.Add(time.Minute), life: "b", counters: map[string]int64{"scheduled": 500, "published": 500}},
		"a shard was dropped": {at: now.Add(time.Minute), life: "a", counters: map[string]int64{"scheduled": 50, "published": 50}},
	} {
		p := later.since(&second)
		assert.Nil(t, p.Scheduled, name)
		assert.Nil(t, p.Published, name)
		assert.Nil(t, p.P99, name)
	}
}
