package telemetry

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// queueMetrics know which queues there are, so that those of a removed one do not come back.
type queueMetrics struct {
	info  *prometheus.GaugeVec
	files prometheus.Gauge
	lost  prometheus.Counter

	mu    sync.Mutex
	known map[string]bool
}

func newQueueMetrics() *queueMetrics {
	return &queueMetrics{
		info: gauges("queue_info", "Always 1, of each queue that this instance has; the labels tell whose it is.", "queue", "owner"),
		files: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Name: "queue_files_wrong", Help: "Queue files that are wrong: each counts as it was before, or has no queues.",
		}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: namespace, Name: "declarations_lost_total", Help: "Times that Redis had lost queues declared by the API that this instance knew.",
		}),
		known: map[string]bool{},
	}
}

// AddQueue makes the series of a queue, so that they are 0 and not missing
// before the first message.
func (m *Metrics) AddQueue(queue string) {
	m.queues.mu.Lock()
	m.queues.known[queue] = true
	m.queues.mu.Unlock()
	m.lateness.WithLabelValues(queue)
	m.inFlight.WithLabelValues(queue)
	m.decode.WithLabelValues(queue)
	m.layout.lost.WithLabelValues(queue)
	m.done.add(queue)
	m.recurring.add(queue)
}

// RemoveQueue ends the series of a queue that this instance does not have any more.
func (m *Metrics) RemoveQueue(queue string) {
	m.queues.mu.Lock()
	delete(m.queues.known, queue)
	m.queues.mu.Unlock()
	for _, vec := range m.ofQueues() {
		vec.DeletePartialMatch(prometheus.Labels{"queue": queue})
	}
}

// QueueHas ends the series of the parts that a queue does not have any more.
func (m *Metrics) QueueHas(queue string, canary, durability bool) {
	if !canary {
		m.canary.took.DeleteLabelValues(queue)
		m.canary.last.DeleteLabelValues(queue)
	}
	if !durability {
		m.durable.DeleteLabelValues(queue)
	}
}

// isKnown reports whether the instance has the queue.
func (m *Metrics) isKnown(queue string) bool {
	m.queues.mu.Lock()
	defer m.queues.mu.Unlock()
	return m.queues.known[queue]
}

// seriesOfQueues are metrics of which one label is the queue.
type seriesOfQueues interface {
	DeletePartialMatch(labels prometheus.Labels) int
}

// ofQueues are all of them.
func (m *Metrics) ofQueues() []seriesOfQueues {
	all := []seriesOfQueues{
		m.lateness, m.inFlight, m.failures, m.decode, m.durable, m.queues.info,
		m.layout.epoch, m.layout.shards, m.layout.lost, m.layout.instances,
		m.levers.paused, m.levers.rates, m.levers.used, m.levers.budget, m.levers.full,
		m.canary.took, m.canary.last, m.recurring.schedules, m.recurring.firings,
	}
	for _, counter := range m.done.all() {
		all = append(all, counter)
	}
	return all
}

// QueueInfo notes whose a queue is.
func (m *Metrics) QueueInfo(queue, owner string) {
	m.queues.info.DeletePartialMatch(prometheus.Labels{"queue": queue})
	m.queues.info.WithLabelValues(queue, owner).Set(1)
}

// WrongQueueFiles notes how many queue files have problems.
func (m *Metrics) WrongQueueFiles(n int) { m.queues.files.Set(float64(n)) }

// DeclarationsLost counts a time that Redis had lost queues that were declared by the API.
func (m *Metrics) DeclarationsLost() { m.queues.lost.Inc() }
