package telemetry

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Lateness is the lateness of the queue's messages that this process has published:
// how many are in each bucket, of which bounds are the upper ends, in seconds. There
// is one count more, of what is above all bounds. Both are nil for a queue that this instance does not have.
func (m *Metrics) Lateness(queue string) (bounds []float64, counts []uint64) {
	if !m.isKnown(queue) {
		return nil, nil
	}
	histogram, _ := m.lateness.WithLabelValues(queue).(prometheus.Histogram)
	var state dto.Metric
	if histogram.Write(&state) != nil { // It writes into memory.
		return nil, nil
	}
	before := uint64(0)
	for _, bucket := range state.GetHistogram().GetBucket() {
		counts = append(counts, bucket.GetCumulativeCount()-before)
		before = bucket.GetCumulativeCount()
	}
	return slices.Clone(latenessBuckets), append(counts, state.GetHistogram().GetSampleCount()-before)
}
