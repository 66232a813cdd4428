package telemetry

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestLateness(t *testing.T) {
	t.Parallel()
	m := New("v1")
	bounds, counts := m.Lateness("orders")
	assert.Empty(t, bounds, "there is no such queue")
	assert.Empty(t, counts)
	m.AddQueue("orders")
	bounds, counts = m.Lateness("orders")
	assert.Equal(t, latenessBuckets, bounds)
	assert.Equal(t, make([]uint64, len(bounds)+1), counts)
	for _, late := range []time.Duration{0, time.Millisecond, 3 * time.Millisecond, time.Hour} {
		m.ObserveLateness("orders", late)
	}
	_, counts = m.Lateness("orders")
	assert.EqualValues(t, 2, counts[0])
	assert.EqualValues(t, 1, counts[2])
	assert.EqualValues(t, 1, counts[len(counts)-1], "above all bounds")
}
