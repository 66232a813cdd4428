package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// levers show what operators hold a queue back with.
type levers struct{ paused, rates *prometheus.GaugeVec }

func newLevers() levers {
	return levers{
		paused: gauges("paused", "Always 1, of each topic that an operator has paused; without a topic it is the whole queue.", "queue", "topic"),
		rates:  gauges("rate_limit", "Most messages a second that are published, over all instances; without a topic it is the whole queue's.", "queue", "topic"),
	}
}

// Paused notes which topics of a queue are paused; the empty one is the whole queue.
func (m *Metrics) Paused(queue string, topics map[string]time.Time) {
	m.levers.paused.DeletePartialMatch(prometheus.Labels{"queue": queue})
	for topic := range topics {
		m.levers.paused.WithLabelValues(queue, topic).Set(1)
	}
}

// RateLimit notes a queue's rate, and those of its topics; 0 is no limit.
func (m *Metrics) RateLimit(queue string, messages int, topics map[string]int) {
	if messages > 0 {
		m.levers.rates.WithLabelValues(queue, "").Set(float64(messages))
	}
	for topic, n := range topics {
		m.levers.rates.WithLabelValues(queue, topic).Set(float64(n))
	}
}
