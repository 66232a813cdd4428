package operate

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestHistogram(t *testing.T) {
	t.Parallel()
	bounds := []float64{1, 2, 4}
	earlier := Histogram{bounds, []uint64{10, 0, 5, 1}}
	h := Histogram{bounds, []uint64{60, 40, 5, 1}}.Minus(earlier)
	assert.Equal(t, []uint64{50, 40, 0, 0}, h.Counts)
	assert.EqualValues(t, 90, h.Count())
	assert.InDelta(t, 0.9, h.quantile(0.5), 1e-9)
	assert.InDelta(t, 1.9775, h.quantile(0.99), 1e-9)
	assert.InDelta(t, 4, Histogram{bounds, []uint64{0, 0, 0, 7}}.quantile(0.5), 0, "above all bounds")
	assert.InDelta(t, 0, Histogram{}.quantile(0.5), 0)
	assert.Equal(t, []uint64{1, 0, 0, 0}, Histogram{bounds, []uint64{1, 0, 0, 0}}.Minus(earlier).Counts, "it has begun anew")
}
