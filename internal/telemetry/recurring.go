package telemetry

import "github.com/prometheus/client_golang/prometheus"

// recurringMetrics are those of the recurring schedules.
type recurringMetrics struct {
	schedules *prometheus.GaugeVec
	firings   *prometheus.CounterVec
}

func newRecurringMetrics() recurringMetrics {
	return recurringMetrics{
		schedules: gauges("recurring_schedules", "Recurring schedules of the queue for which this instance plans; 0 on all instances but one.", "queue"),
		firings: counters("recurring_firings_total",
			"Firings of recurring schedules that this instance has made messages of (scheduled), or left out since nobody planned them in time (skipped).", "queue", "result"),
	}
}

func (m *recurringMetrics) add(queue string) {
	m.schedules.WithLabelValues(queue)
	m.firings.WithLabelValues(queue, "scheduled")
	m.firings.WithLabelValues(queue, "skipped")
}

// RecurringSchedules notes for how many schedules of a queue this instance plans.
func (m *Metrics) RecurringSchedules(queue string, schedules int) {
	m.recurring.schedules.WithLabelValues(queue).Set(float64(schedules))
}

// RecurringFirings counts firings that have become messages, and those that were missed and left out.
func (m *Metrics) RecurringFirings(queue string, scheduled, skipped int64) {
	m.recurring.firings.WithLabelValues(queue, "scheduled").Add(float64(scheduled))
	m.recurring.firings.WithLabelValues(queue, "skipped").Add(float64(skipped))
}
