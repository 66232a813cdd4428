package telemetry

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// TestRemoveQueue: no series of a removed queue stays, or comes back; those of others do.
func TestRemoveQueue(t *testing.T) {
	t.Parallel()
	m := New("v1")
	for _, queue := range []string{"gone", "stays"} {
		m.AddQueue(queue)
		m.AddCanary(queue)
		m.CanaryArrived(queue, time.Second)
		m.Settled(queue, [...]int{message.VerbAck: 1, message.VerbDrop: 0}, 0)
		m.Reclaimed(queue, 1)
		m.Stale(queue)
		m.ObserveLateness(queue, time.Second)
		m.PublishFailure(queue, "retryable", "topic_missing")
		m.AddInFlight(queue, 1)
		m.Durable(queue, true)
		m.DecodeError(queue)
		m.ShardsLost(queue, 1)
		m.Layout(queue, "1-a", 2)
		m.Instances(queue, 1)
		m.Paused(queue, map[string]time.Time{"": {}, "t": {}})
		m.RateLimit(queue, 1, map[string]int{"t": 1})
		m.Budget(queue, 1, 2, 3)
		m.RecurringSchedules(queue, 1)
		m.RecurringFirings(queue, 1, 1)
		m.QueueInfo(queue, "ann")
	}
	m.QueueInfo("stays", "bob")
	of := func(queue string) (n int) {
		families, err := m.registry.Gather()
		require.NoError(t, err)
		for _, family := range families {
			for _, series := range family.GetMetric() {
				for _, label := range series.GetLabel() {
					if label.GetName() == "queue" && label.GetValue() == queue {
						n++
					}
				}
			}
		}
		return n
	}
	all := of("stays")
	assert.Equal(t, all, of("gone"))
	m.RemoveQueue("gone")
	_, counts := m.Lateness("gone")
	assert.Empty(t, counts)
	assert.Zero(t, of("gone"))
	assert.Equal(t, all, of("stays"), "and one owner")
	m.QueueHas("stays", true, true)
	assert.Equal(t, all, of("stays"))
	m.QueueHas("stays", false, false)
	assert.Equal(t, all-3, of("stays"), "no canary, no durability")
}
