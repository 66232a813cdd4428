package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Window is how much a sink may have in flight, and how much it has.
type Window interface {
	Limit() (messages, bytes int)
	InFlight() (messages, bytes int)
}

// AddWindow shows a sink's window from now on. It panics if it is called twice
// for one sink.
func (m *Metrics) AddWindow(sink string, w Window) {
	messages := func(read func() (int, int)) func() float64 {
		return func() float64 { n, _ := read(); return float64(n) }
	}
	bytes := func(read func() (int, int)) func() float64 {
		return func() float64 { _, n := read(); return float64(n) }
	}
	labels := prometheus.Labels{"sink": sink}
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: namespace, Name: "window_limit_messages", ConstLabels: labels,
			Help: "Messages that this instance may have in flight to the sink.",
		}, messages(w.Limit)),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: namespace, Name: "window_limit_bytes", ConstLabels: labels,
			Help: "Bytes that this instance may have in flight to the sink.",
		}, bytes(w.Limit)),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: namespace, Name: "window_used_messages", ConstLabels: labels,
			Help: "Messages that are in flight to the sink.",
		}, messages(w.InFlight)),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: namespace, Name: "window_used_bytes", ConstLabels: labels,
			Help: "Bytes that are in flight to the sink.",
		}, bytes(w.InFlight)),
	)
}
