package telemetry

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// callBuckets resolve what a call of the API takes, and end at its limit.
var callBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15}

// serverMetrics are about the Redis that this instance uses, and the API that it serves.
type serverMetrics struct {
	used, limit *prometheus.GaugeVec
	calls       *prometheus.HistogramVec
}

func newServerMetrics() serverMetrics {
	return serverMetrics{
		used:  gauges("redis_memory_used_bytes", "What Redis takes of its memory: each primary of a Cluster, by its address.", "node"),
		limit: gauges("redis_memory_max_bytes", "Redis' maxmemory; 0 if it has none.", "node"),
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "api_request_seconds", Buckets: callBuckets,
			Help: "Calls of the API, from the first byte of the request to the last of the answer; streams are not among them.",
		}, []string{"call", "code"}),
	}
}

// RegisterRedis has each scrape ask whether Redis has answered of late.
func (m *Metrics) RegisterRedis(isUp func() bool) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "redis_up", Help: "1 if Redis has answered this instance within the last ten seconds.",
	}, func() float64 {
		if isUp() {
			return 1
		}
		return 0
	}))
}

// RedisMemory notes what a node of Redis takes and may take, in bytes; a limit of 0 is none.
func (m *Metrics) RedisMemory(node string, used, limit int64) {
	m.servers.used.WithLabelValues(node).Set(float64(used))
	m.servers.limit.WithLabelValues(node).Set(float64(limit))
}

// NoRedisMemory notes that a node has not answered for a while.
func (m *Metrics) NoRedisMemory(node string) {
	m.servers.used.DeleteLabelValues(node)
	m.servers.limit.DeleteLabelValues(node)
}

// Timed serves as next does, and notes how long that took, by the call's name and the
// answer's status.
func (m *Metrics) Timed(call string, next http.Handler) http.Handler {
	return promhttp.InstrumentHandlerDuration(m.servers.calls.MustCurryWith(prometheus.Labels{"call": call}), next)
}
