package telemetry

import "github.com/prometheus/client_golang/prometheus"

// inletMetrics are those of the inlets.
type inletMetrics struct {
	messages, repeated *prometheus.CounterVec
	waits              *prometheus.GaugeVec
}

func newInletMetrics() inletMetrics {
	return inletMetrics{
		messages: counters("inlet_messages_total",
			"Messages that this instance has consumed, by what they asked for and what became of it: the status, or the code of the error. Sum over the instances.",
			"inlet", "op", "result"),
		repeated: counters("inlet_repeated_total",
			"Messages that could not be done at once, because Redis or the broker was not ready. Sum over the instances.", "inlet"),
		waits: gauges("inlet_lag",
			"Messages that waited at the broker behind the last one that this instance got. On Kafka those of its partitions: take the sum; else the max.", "inlet"),
	}
}

func (m *inletMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.messages, m.repeated, m.waits}
}

// Inlet counts for one inlet.
type Inlet struct {
	name string
	m    *inletMetrics
}

// AddInlet adds an inlet, whose counters begin at 0.
func (m *Metrics) AddInlet(name string) *Inlet {
	m.inlet.repeated.WithLabelValues(name)
	m.inlet.messages.WithLabelValues(name, "schedule", "created")
	return &Inlet{name: name, m: &m.inlet}
}

// Done counts a message by what became of it. op is empty if it is not known.
func (i *Inlet) Done(op, result string) { i.m.messages.WithLabelValues(i.name, op, result).Inc() }

// Repeated counts a message that is tried again.
func (i *Inlet) Repeated() { i.m.repeated.WithLabelValues(i.name).Inc() }

// Waits notes how many messages wait at the broker.
func (i *Inlet) Waits(messages int64) { i.m.waits.WithLabelValues(i.name).Set(float64(messages)) }
