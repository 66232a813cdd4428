package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// doneCounters count what this process did with messages, from 0 at its start.
type doneCounters struct {
	published, retried, deadLettered, reclaimed *prometheus.CounterVec
	released, parked, stale, suspected          *prometheus.CounterVec
}

func newDoneCounters() *doneCounters {
	return &doneCounters{
		published:    counters("published_total", "Messages that this instance removed because the broker acknowledged them.", "queue"),
		retried:      counters("retried_total", "Messages that this instance put back because the broker refused them.", "queue"),
		deadLettered: counters("dead_lettered_total", "Messages that this instance moved to the dead letters.", "queue"),
		reclaimed:    counters("reclaimed_total", "Messages that this instance took back from claims that were not settled in time.", "queue"),
		released:     counters("released_total", "Messages that this instance put back at their due time, no attempt counted.", "queue"),
		parked:       counters("parked_total", "Messages that this instance parked because their route is unavailable, each time.", "queue"),
		stale:        counters("stale_settles_total", "Claims that this instance settled after they had ended.", "queue"),
		suspected:    counters("suspected_duplicates_total", "Messages that this instance published, or may have, while an earlier copy may have been.", "queue"),
	}
}

func (d *doneCounters) all() []*prometheus.CounterVec {
	return []*prometheus.CounterVec{d.published, d.retried, d.deadLettered, d.reclaimed, d.released, d.parked, d.stale, d.suspected}
}

func (d *doneCounters) collectors() []prometheus.Collector {
	var list []prometheus.Collector
	for _, counter := range d.all() {
		list = append(list, counter)
	}
	return list
}

// add makes the series of a queue.
func (d *doneCounters) add(queue string) {
	for _, counter := range d.all() {
		counter.WithLabelValues(queue)
	}
}

// Settled counts how a settle has ended a claim or a part of it: messages by
// verb, and those published of which an earlier copy may be out.
func (m *Metrics) Settled(queue string, n [message.VerbDrop + 1]int, suspected int) {
	for verb, counter := range map[message.Verb]*prometheus.CounterVec{
		message.VerbAck:        m.done.published,
		message.VerbRetry:      m.done.retried,
		message.VerbDeadLetter: m.done.deadLettered,
		message.VerbRelease:    m.done.released,
		message.VerbPark:       m.done.parked,
	} {
		counter.WithLabelValues(queue).Add(float64(n[verb]))
	}
	m.done.suspected.WithLabelValues(queue).Add(float64(suspected))
}

// Reclaimed counts messages taken back from claims that were not settled in time.
func (m *Metrics) Reclaimed(queue string, n int) {
	m.done.reclaimed.WithLabelValues(queue).Add(float64(n))
}

// Stale counts a settle that came too late.
func (m *Metrics) Stale(queue string) { m.done.stale.WithLabelValues(queue).Inc() }
