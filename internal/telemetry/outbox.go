package telemetry

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// sameEverywhere ends the help of gauges that all relays of a database tell alike.
const sameEverywhere = " Each instance tells the same: take the max, not the sum."

// outboxMetrics are those of the outboxes and of compensation messages.
type outboxMetrics struct {
	pending, oldest, skew, unknown *prometheus.GaugeVec
	applied, settled, reconciled   *prometheus.CounterVec
	compensations                  *prometheus.CounterVec
	up                             outboxUp
}

func newOutboxMetrics() *outboxMetrics {
	return &outboxMetrics{
		pending: gauges("outbox_pending", "Rows that could be in Redis by now, and are not: counted up to 100,000."+sameEverywhere, "outbox"),
		oldest:  gauges("outbox_oldest_age_seconds", "How long the oldest of them could have been in Redis; 0 if none waits."+sameEverywhere, "outbox"),
		skew:    gauges("outbox_skew_seconds", "How far the database's clock is ahead of that of Redis."+sameEverywhere, "outbox"),
		unknown: gauges("outbox_unknown_queue_rows",
			"Rows that wait for queues that this bridge does not have. Take the max over the instances of one configuration.", "outbox"),
		applied: counters("outbox_applied_total",
			"Rows that this instance has taken to Redis, by what they asked for and their new state. Sum over the instances.",
			"outbox", "queue", "verb", "state"),
		settled: counters("outbox_settled_total",
			"Rows that this instance has told what became of their messages in Redis. Sum over the instances.", "outbox"),
		reconciled: counters("outbox_reconciled_total",
			"Rows and messages that this instance has compared, by what was found. Sum over the instances.", "outbox", "result"),
		compensations: counters("compensations_total",
			"Compensation messages that this instance has consumed, by what became of them. Sum over the instances.", "queue", "result"),
		up: outboxUp{
			description: prometheus.NewDesc(namespace+"_outbox_up",
				"1 if the database answers this instance and is fit, 0 if not. Each instance has its own view: take the min.", []string{"outbox"}, nil),
			states: map[string]func() error{},
		},
	}
}

func (m *outboxMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.pending, m.oldest, m.skew, m.unknown, m.applied, m.settled, m.reconciled, m.compensations, &m.up,
	}
}

// outboxUp asks each outbox for its state at a scrape.
type outboxUp struct {
	description *prometheus.Desc

	mu     sync.Mutex
	states map[string]func() error
}

// Describe implements [prometheus.Collector].
func (u *outboxUp) Describe(out chan<- *prometheus.Desc) { out <- u.description }

// Collect implements [prometheus.Collector].
func (u *outboxUp) Collect(out chan<- prometheus.Metric) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for name, state := range u.states {
		value := 0.0
		if state() == nil {
			value = 1
		}
		out <- prometheus.MustNewConstMetric(u.description, prometheus.GaugeValue, value, name)
	}
}

// Outbox counts what happens with one outbox: it is the observer of its relay.
type Outbox struct {
	name string
	m    *outboxMetrics
}

// AddOutbox makes the series of an outbox. state is called at each scrape and
// must not block; nil says that the database answers and is fit.
func (m *Metrics) AddOutbox(name string, state func() error) *Outbox {
	o := m.outbox
	o.up.mu.Lock()
	o.up.states[name] = state
	o.up.mu.Unlock()
	for _, gauge := range []*prometheus.GaugeVec{o.pending, o.oldest, o.unknown} {
		gauge.WithLabelValues(name)
	}
	o.settled.WithLabelValues(name)
	return &Outbox{name: name, m: o}
}

// Backlog notes how many rows could be in Redis by now, and since when the
// oldest of them could.
func (o *Outbox) Backlog(rows int, oldest time.Duration) {
	o.m.pending.WithLabelValues(o.name).Set(float64(rows))
	o.m.oldest.WithLabelValues(o.name).Set(oldest.Seconds())
}

// Applied counts a row by what it asked for and its new state.
func (o *Outbox) Applied(queue, verb, state string) {
	o.m.applied.WithLabelValues(o.name, queue, verb, state).Inc()
}

// Skew notes how far the database's clock is ahead of that of Redis.
func (o *Outbox) Skew(ahead time.Duration) {
	o.m.skew.WithLabelValues(o.name).Set(ahead.Seconds())
}

// UnknownQueues notes how many rows wait for queues that this bridge does not have.
func (o *Outbox) UnknownQueues(rows int) {
	o.m.unknown.WithLabelValues(o.name).Set(float64(rows))
}

// Settled counts rows that were told what became of their messages.
func (o *Outbox) Settled(rows int) { o.m.settled.WithLabelValues(o.name).Add(float64(rows)) }

// Reconciled counts what comparing rows with Redis has found.
func (o *Outbox) Reconciled(result string, count int64) {
	o.m.reconciled.WithLabelValues(o.name, result).Add(float64(count))
}

// Compensated counts a compensation message by what became of it.
func (m *Metrics) Compensated(queue, result string) {
	m.outbox.compensations.WithLabelValues(queue, result).Inc()
}
