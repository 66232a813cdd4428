package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// levers show the means by which operators hold a queue back.
type levers struct{ paused, rates, used, budget, full *prometheus.GaugeVec }

func newLevers() levers {
	return levers{
		paused: gauges("paused", "Always 1, of each topic that an operator has paused; without a topic it is the whole queue.", "queue", "topic"),
		rates:  gauges("rate_limit", "Most messages a second that are published, over all instances; without a topic it is the whole queue's.", "queue", "topic"),
		used:   gauges("used_bytes", "About how many bytes the queue takes in Redis. Of queues with a budget, told by one instance.", "queue"),
		budget: gauges("budget_bytes", "How many bytes the queue may take in Redis. Of queues with a budget, told by one instance.", "queue"),
		full:   gauges("full_seconds", "After how long the queue's budget is used up, if it grows on as in the last ten minutes; +Inf where it does not grow.", "queue"),
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
	m.levers.rates.DeletePartialMatch(prometheus.Labels{"queue": queue})
	if messages > 0 {
		m.levers.rates.WithLabelValues(queue, "").Set(float64(messages))
	}
	for topic, n := range topics {
		m.levers.rates.WithLabelValues(queue, topic).Set(float64(n))
	}
}

// Budget records how many bytes a queue takes and may take, and in how many seconds it is
// full at its present growth.
func (m *Metrics) Budget(queue string, used, budget int64, fullIn float64) {
	m.levers.used.WithLabelValues(queue).Set(float64(used))
	m.levers.budget.WithLabelValues(queue).Set(float64(budget))
	m.levers.full.WithLabelValues(queue).Set(fullIn)
}

// NoBudget records that another instance reports the queue's budget.
func (m *Metrics) NoBudget(queue string) {
	m.levers.used.DeleteLabelValues(queue)
	m.levers.budget.DeleteLabelValues(queue)
	m.levers.full.DeleteLabelValues(queue)
}
