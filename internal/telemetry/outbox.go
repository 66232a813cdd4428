package telemetry

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// sameEverywhere ends the help of gauges for which all relays of a database export the same value.
const sameEverywhere = " Each instance tells the same: take the max, not the sum."

// outboxMetrics are those of the outboxes and of compensation messages.
type outboxMetrics struct {
	pending, oldest, blocked  *prometheus.GaugeVec
	skew, unknown             *prometheus.GaugeVec
	overdue, unaudited        *prometheus.GaugeVec
	applied, settled, audited *prometheus.CounterVec
	compensations             *prometheus.CounterVec
	up                        outboxUp
}

func newOutboxMetrics() *outboxMetrics {
	return &outboxMetrics{
		pending: gauges("outbox_pending", "Rows that could be in Redis by now, and are not: counted up to 100,000."+sameEverywhere, "outbox"),
		oldest:  gauges("outbox_oldest_age_seconds", "How long the oldest of them could have been in Redis; 0 if none waits."+sameEverywhere, "outbox"),
		blocked: gauges("outbox_blocked", "Rows that wait for another message of their id to leave, as this instance has found them. Take the max.", "outbox"),
		skew:    gauges("outbox_skew_seconds", "How far the database's clock is ahead of that of Redis."+sameEverywhere, "outbox"),
		unknown: gauges("outbox_unknown_queue_rows",
			"Rows that wait for queues that this bridge does not have. Take the max over the instances of one configuration.", "outbox"),
		applied: counters("outbox_applied_total",
			"Rows that this instance has taken to Redis, by what they asked for and their new state. Sum over the instances.",
			"outbox", "queue", "verb", "state"),
		settled: counters("outbox_settled_total",
			"Rows that this instance has told what became of their messages in Redis. Sum over the instances.", "outbox"),
		overdue: gauges("outbox_overdue",
			"Rows of the queue whose message was due half a minute ago, which Redis does not have, and which were not told its end:"+
				" of those that the auditor compares in a second."+
				" One instance audits a queue: take the max.", "outbox", "queue"),
		unaudited: gauges("outbox_unaudited_seconds",
			"How long ago the row was compared with Redis for which that is longest. One instance audits a queue: take the max.", "outbox", "queue"),
		audited: counters("outbox_audited_total",
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
		m.pending, m.oldest, m.blocked, m.skew, m.unknown, m.overdue, m.unaudited, m.applied, m.settled, m.audited, m.compensations, &m.up,
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
	for _, gauge := range []*prometheus.GaugeVec{o.pending, o.oldest, o.blocked, o.unknown} {
		gauge.WithLabelValues(name)
	}
	o.settled.WithLabelValues(name)
	return &Outbox{name: name, m: o}
}

// Backlog records how many rows could be in Redis by now, since when the oldest
// of them could, and how many wait for another message of their id.
func (o *Outbox) Backlog(rows int, oldest time.Duration, blocked int) {
	o.m.blocked.WithLabelValues(o.name).Set(float64(blocked))
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

// Settled counts rows that were told how their messages ended.
func (o *Outbox) Settled(rows int) { o.m.settled.WithLabelValues(o.name).Add(float64(rows)) }

// Audited counts what comparing rows with Redis has found.
func (o *Outbox) Audited(result string, count int64) {
	o.m.audited.WithLabelValues(o.name, result).Add(float64(count))
}

// Watched notes what the auditor sees of a queue, see AuditorConfig in package outbox.
func (o *Outbox) Watched(queue string, overdue int, unaudited time.Duration) {
	o.m.overdue.WithLabelValues(o.name, queue).Set(float64(overdue))
	o.m.unaudited.WithLabelValues(o.name, queue).Set(unaudited.Seconds())
}

// Unwatched notes that another instance audits the queue.
func (o *Outbox) Unwatched(queue string) {
	o.m.overdue.DeleteLabelValues(o.name, queue)
	o.m.unaudited.DeleteLabelValues(o.name, queue)
}

// Compensated counts a compensation message by its result.
func (m *Metrics) Compensated(queue, result string) {
	m.outbox.compensations.WithLabelValues(queue, result).Inc()
}
