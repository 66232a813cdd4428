package telemetry

import "github.com/prometheus/client_golang/prometheus"

// issuerMetrics are about the keys of issuers, by which callers with JWTs are known.
type issuerMetrics struct {
	fetches  *prometheus.CounterVec
	up, last *prometheus.GaugeVec
}

func newIssuerMetrics() issuerMetrics {
	return issuerMetrics{
		fetches: counters("issuer_fetches_total", "Times that an issuer was asked for its keys.", "issuer", "result"),
		up:      gauges("issuer_up", "1 if the issuer's keys could be fetched the last time, 0 if not: its tokens are refused a day after the last success.", "issuer"),
		last:    gauges("issuer_keys_timestamp_seconds", "When the issuer's keys were last fetched; absent if never.", "issuer"),
	}
}

// IssuerFetched notes what came of a fetch of an issuer's keys.
func (m *Metrics) IssuerFetched(issuer string, err error) {
	m.issuers.up.WithLabelValues(issuer).Set(flag(err == nil))
	if err != nil {
		m.issuers.fetches.WithLabelValues(issuer, "failure").Inc()
		return
	}
	m.issuers.fetches.WithLabelValues(issuer, "success").Inc()
	m.issuers.last.WithLabelValues(issuer).SetToCurrentTime()
}

// IssuerGone forgets an issuer that is no longer configured.
func (m *Metrics) IssuerGone(issuer string) {
	of := prometheus.Labels{"issuer": issuer}
	m.issuers.fetches.DeletePartialMatch(of)
	m.issuers.up.Delete(of)
	m.issuers.last.Delete(of)
}
