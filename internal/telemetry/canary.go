package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// canaryMetrics are about the messages that the bridge sends through queues to see
// whether they deliver.
type canaryMetrics struct {
	took *prometheus.HistogramVec
	last *prometheus.GaugeVec
}

func newCanaryMetrics() canaryMetrics {
	return canaryMetrics{
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "canary_seconds", Buckets: latenessBuckets,
			Help: "From a canary's schedule to its acknowledgement by the broker, of those that this instance published.",
		}, []string{"queue"}),
		last: gauges("canary_last_success_timestamp_seconds",
			"When this instance published a canary last, or else when it started: take max by (queue).", "queue"),
	}
}

// AddCanary makes the series of a queue that has a canary. What was never published
// counts from here.
func (m *Metrics) AddCanary(queue string) {
	m.canary.took.WithLabelValues(queue)
	m.canary.last.WithLabelValues(queue).SetToCurrentTime()
}

// CanaryArrived records that the broker has acknowledged a canary.
func (m *Metrics) CanaryArrived(queue string, took time.Duration) {
	m.canary.took.WithLabelValues(queue).Observe(max(0, took.Seconds()))
	m.canary.last.WithLabelValues(queue).SetToCurrentTime()
}
