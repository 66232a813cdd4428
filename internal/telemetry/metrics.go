// Package telemetry has the Prometheus metrics of the bridge, all named
// delaybridge_…, its logger and its traces.
//
// There are three kinds of metrics. [Metrics] counts what this process does, from 0
// at its start, so the sum over the instances is right whoever takes over which
// shard. The scripts in Redis count for a whole queue, since the bridge never sees a
// producer's calls; these counters are read from all shards at each scrape, and are
// the same on every instance: see counters.go. The contents of a shard are exported
// by its holder alone, see [Metrics.RegisterStats].
//
// Labels are bounded: queues, sinks, classes and reasons are closed sets, topics
// are capped; never an id or a key. Nothing here is global.
package telemetry

import (
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const namespace = "delaybridge"

// latenessBuckets resolve what a healthy bridge shows, milliseconds, and end
// where no one asks for more than "minutes".
var latenessBuckets = []float64{.001, .002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// Metrics counts what happens in this process. Its methods are safe for
// concurrent use and never block on anything but each other.
type Metrics struct {
	registry *prometheus.Registry
	lateness *prometheus.HistogramVec
	inFlight *prometheus.GaugeVec
	failures *prometheus.CounterVec
	decode   *prometheus.CounterVec
	refused  *prometheus.CounterVec
	done     *doneCounters
	durable  *prometheus.GaugeVec
	missing  *missingTopics
	outbox   *outboxMetrics
	inlet    inletMetrics
	levers   levers
	canary   canaryMetrics
	reloads  reloadMetrics
	issuers  issuerMetrics
	servers  serverMetrics
	queues   *queueMetrics

	recurring recurringMetrics
	layout    layoutMetrics
}

// layoutMetrics are about a queue's shards and the instances that share them.
type layoutMetrics struct {
	epoch, shards, instances *prometheus.GaugeVec
	lost                     *prometheus.CounterVec
}

// New makes the metrics of a process, with a registry of their own.
func New(version string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		lateness: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "lateness_seconds", Buckets: latenessBuckets,
			Help: "From the due time to the broker's acknowledgement.",
		}, []string{"queue"}),
		inFlight: gauges("in_flight", "Messages that this instance has claimed and not settled.", "queue"),
		failures: counters("publish_failures_total", "Messages that were not acknowledged, each time.", "queue", "class", "reason"),
		decode:   counters("decode_errors_total", "Stored messages that were missing or could not be decoded.", "queue"),
		refused:  counters("api_refused_total", "Calls of the API that were refused for who made them, or how often.", "code"),
		done:     newDoneCounters(),
		durable:  gauges("durable", "1 if Redis confirms what the queue's durability asks, 0 if it does not: then nothing is published.", "queue"),
		missing:  newMissingTopics(time.Now),
		outbox:   newOutboxMetrics(),
		inlet:    newInletMetrics(),
		levers:   newLevers(),
		canary:   newCanaryMetrics(),
		reloads:  newReloadMetrics(),
		issuers:  newIssuerMetrics(),
		servers:  newServerMetrics(),
		queues:   newQueueMetrics(),

		recurring: newRecurringMetrics(),
		layout: layoutMetrics{
			epoch:     gauges("layout_epoch", "The layout that this instance uses: how many the queue has had.", "queue"),
			shards:    gauges("layout_shards", "Shards of the queue in the layout that this instance uses.", "queue"),
			lost:      counters("shards_lost_total", "Shards that Redis has lost, with the messages in them, as this instance saw it.", "queue"),
			instances: gauges("instances", "Instances that share the queue's shards, as this one sees it.", "queue"),
		},
	}
	build := gauges("build_info", "Always 1; the labels tell what runs.", "version", "goversion")
	build.WithLabelValues(version, runtime.Version()).Set(1)
	m.registry.MustRegister(
		m.lateness, m.inFlight, m.failures, m.decode, m.refused, m.durable, m.missing, build,
		m.layout.epoch, m.layout.shards, m.layout.lost, m.layout.instances, m.levers.paused, m.levers.rates, m.canary.took, m.canary.last,
		m.levers.used, m.levers.budget, m.levers.full, m.reloads.all, m.reloads.last,
		m.issuers.fetches, m.issuers.up, m.issuers.last,
		m.servers.used, m.servers.limit, m.servers.calls, m.recurring.schedules, m.recurring.firings,
		m.queues.info, m.queues.files, m.queues.lost,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	for _, code := range []string{"unauthorized", "forbidden", "read_only", "rate_limited"} {
		m.refused.WithLabelValues(code)
	}
	m.registry.MustRegister(m.done.collectors()...)
	m.registry.MustRegister(m.outbox.collectors()...)
	m.registry.MustRegister(m.inlet.collectors()...)
	return m
}

func gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

// Handler serves the metrics. A failing collector loses only its own metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, EnableOpenMetrics: true, Registry: m.registry,
	})
}

// ObserveLateness notes the time from a message's due time to the broker's acknowledgement.
// A negative time, which only two different clocks can produce, counts as 0.
func (m *Metrics) ObserveLateness(queue string, lateness time.Duration) {
	m.lateness.WithLabelValues(queue).Observe(max(0, lateness.Seconds()))
}

// PublishFailure counts one message that was not acknowledged. class and reason
// are those of the sink's outcome.
func (m *Metrics) PublishFailure(queue string, class, reason string) {
	m.failures.WithLabelValues(queue, class, reason).Inc()
}

// AddInFlight changes the number of claimed, unsettled messages.
func (m *Metrics) AddInFlight(queue string, delta int) {
	m.inFlight.WithLabelValues(queue).Add(float64(delta))
}

// AddSink shows from now on whether a sink's broker answers. It panics if it is called
// twice for one sink.
func (m *Metrics) AddSink(sink string, isUp func() bool) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "sink_up", ConstLabels: prometheus.Labels{"sink": sink},
		Help: "1 if the broker answers, 0 if it does not.",
	}, func() float64 { return flag(isUp()) }))
}

// Durable says whether Redis confirms what a queue's durability asks.
func (m *Metrics) Durable(queue string, confirmed bool) {
	m.durable.WithLabelValues(queue).Set(flag(confirmed))
}

func flag(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// SinkMissing notes that a topic does not exist at the broker. It is shown for
// five minutes.
func (m *Metrics) SinkMissing(sink, topic string) { m.missing.note(sink, topic) }

// DecodeError counts a stored message that was missing or could not be decoded.
func (m *Metrics) DecodeError(queue string) { m.decode.WithLabelValues(queue).Inc() }

// CallRefused counts a call of the API that was refused, by the code of the answer.
func (m *Metrics) CallRefused(code string) { m.refused.WithLabelValues(code).Inc() }

// ShardsLost counts shards that Redis has lost.
func (m *Metrics) ShardsLost(queue string, n int) {
	m.layout.lost.WithLabelValues(queue).Add(float64(n))
}

// Layout notes the layout in use: the epoch's counter, which is the part before
// its first dash, and the number of shards.
func (m *Metrics) Layout(queue, epoch string, shards int) {
	counter, _, _ := strings.Cut(epoch, "-")
	if n, err := strconv.ParseFloat(counter, 64); err == nil {
		m.layout.epoch.WithLabelValues(queue).Set(n)
	}
	m.layout.shards.WithLabelValues(queue).Set(float64(shards))
}

// Instances notes how many instances share the queue's shards.
func (m *Metrics) Instances(queue string, n int) {
	m.layout.instances.WithLabelValues(queue).Set(float64(n))
}
