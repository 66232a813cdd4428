package api

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/delaybridge/delaybridge/internal/operate"
)

// TestRates are by the second, of the last ten of them, as far as somebody has looked.
func TestRates(t *testing.T) {
	t.Parallel()
	now := time.Now()
	at := func(ago time.Duration, scheduled int64) *moment {
		return &moment{
			at: now.Add(-ago), counters: map[string]map[string]int64{"q": {"scheduled": scheduled}},
			lateness: map[string]operate.Histogram{"q": {Bounds: []float64{1}, Counts: []uint64{uint64(scheduled), 0}}}, //nolint:gosec // small
		}
	}
	s := &snapshot{moment: at(0, 1000)}
	assert.Nil(t, s.rates("q"), "nobody has looked before")
	assert.Equal(t, &operate.Lateness{Over: 0, Messages: 1000, P50: 0.5, P99: 0.99}, s.latenessOf("q"), "since the start")
	s.earlier = []*moment{at(50*time.Second, 100), at(30*time.Second, 500), at(8*time.Second, 600), at(time.Second, 900)}
	assert.Equal(t, &operate.Rates{Over: 8, Scheduled: 50}, s.rates("q"))
	assert.Equal(t, &operate.Lateness{Over: 50, Messages: 900, P50: 0.5, P99: 0.99}, s.latenessOf("q"))
	s.counters["q"]["scheduled"] = 0
	assert.Nil(t, s.rates("q"), "Redis was wiped, or shards were dropped: nobody knows")
	delete(s.earlier[2].counters, "q")
	assert.Nil(t, s.rates("q"), "it could not be read then")
}
