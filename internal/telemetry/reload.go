package telemetry

import "github.com/prometheus/client_golang/prometheus"

// reloadMetrics count reloads of the configuration.
type reloadMetrics struct {
	all  *prometheus.CounterVec
	last prometheus.Gauge
}

func newReloadMetrics() reloadMetrics {
	m := reloadMetrics{
		all: counters("config_reloads_total", "Times that the configuration was read again; one that failed changed nothing.", "result"),
		last: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Name: "config_last_reload_success_timestamp_seconds",
			Help: "When the configuration in force was read.",
		}),
	}
	m.all.WithLabelValues("success")
	m.all.WithLabelValues("failure")
	m.last.SetToCurrentTime()
	return m
}

// Reloaded counts a time that the configuration was read again; err is why nothing was
// changed.
func (m *Metrics) Reloaded(err error) {
	if err != nil {
		m.reloads.all.WithLabelValues("failure").Inc()
		return
	}
	m.reloads.all.WithLabelValues("success").Inc()
	m.reloads.last.SetToCurrentTime()
}
