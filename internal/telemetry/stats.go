package telemetry

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// statsTimeout bounds what a scrape waits for Redis: far below the usual
	// scrape timeout of 10 s, so that the other metrics arrive.
	statsTimeout = 2 * time.Second
	// statsFor is how long an answer is reused: several scrapers, and a person
	// who reloads the page, cost Redis one read a second.
	statsFor = time.Second
)

// QueueStats counts the contents of a shard that this instance holds.
type QueueStats struct {
	Queue string
	Shard int
	// Instance is the holder's name.
	Instance string
	// Waiting counts messages that wait, Due those of them that are due, and
	// Parked those of them whose route is unavailable.
	Waiting, Due, Parked int64
	// InFlight counts messages that are claimed and not settled, by any instance.
	InFlight int64
	// Dead counts dead letters.
	Dead int64
	// OldestDueAge is how long ago the first waiting message was due; 0 if none is due.
	OldestDueAge time.Duration
}

// StatsSource reads from Redis.
type StatsSource interface {
	// Stats returns an entry for each shard that this instance holds, so that the
	// sum over the instances is right. A queue of which a shard did
	// not answer is left out, and the error says why. ctx has a deadline.
	Stats(ctx context.Context) ([]QueueStats, error)
	// Counters returns an entry for each queue, no matter which instance holds its shards. A queue
	// that did not answer at all is left out, and the error says why. ctx has a
	// deadline.
	Counters(ctx context.Context, names []string) ([]QueueCounters, error)
}

// RegisterStats adds the metrics of the shards and the queues, read from the
// source at each scrape. ctx lasts as long as the process serves metrics: when
// it ends, so does a read that is under way. It panics where it is called twice.
func (m *Metrics) RegisterStats(ctx context.Context, source StatsSource) {
	errors := prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: namespace, Name: "stats_errors_total", Help: "Reads of the shards' statistics that failed, wholly or for a queue.",
	})
	m.registry.MustRegister(
		errors,
		&statsCollector{answers: &cache[[]QueueStats]{ctx: ctx, read: source.Stats, errors: errors}},
		newCounterCollector(ctx, source, errors),
	)
}

// cache holds an answer of Redis for a second. Concurrent scrapes share one request.
type cache[T any] struct {
	ctx    context.Context //nolint:containedctx // It ends when the process does; a scrape has none.
	read   func(context.Context) (T, error)
	errors prometheus.Counter

	mu   sync.Mutex
	at   time.Time
	last T
}

// get returns the answer, or the part of it that was read before an error.
func (c *cache[T]) get() T {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.at.IsZero() && time.Since(c.at) < statsFor {
		return c.last
	}
	ctx, cancel := context.WithTimeout(c.ctx, statsTimeout)
	defer cancel()
	answer, err := c.read(ctx)
	if err != nil {
		c.errors.Inc()
	}
	c.last, c.at = answer, time.Now()
	return c.last
}

var (
	waitingDesc = queueDesc("waiting", "Messages that wait for their due time or for a claim.")
	dueDesc     = queueDesc("due", "Waiting messages that are due.")
	claimedDesc = queueDesc("claimed", "Messages that are claimed and not settled, by whichever instance.")
	parkedDesc  = queueDesc("parked", "Waiting messages that are parked: their route is unavailable.")
	deadDesc    = queueDesc("dead", "Dead letters.")
	oldestDesc  = queueDesc("oldest_due_age_seconds", "How long ago the first waiting message was due; 0 if none is due.")
)

func queueDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(namespace+"_"+name, help+" In the shards that this instance holds.", []string{"queue"}, nil)
}

var (
	shardWaitingDesc = shardDesc("shard_waiting", "Messages of the shard that wait for their due time or for a claim.")
	shardDueDesc     = shardDesc("shard_due", "Waiting messages of the shard that are due.")
	shardParkedDesc  = shardDesc("shard_parked", "Waiting messages of the shard that are parked: their route is unavailable.")
	shardClaimedDesc = shardDesc("shard_in_flight", "Messages of the shard that are claimed and not settled, by whichever instance.")
	shardOldestDesc  = shardDesc("shard_oldest_due_age_seconds", "How long ago the first waiting message of the shard was due; 0 if none is due.")
	shardHolderDesc  = shardDesc("shard_holder", "Always 1; the labels tell which instance may poll the shard.", "instance")
)

// shardDesc describes a metric of one shard. Its holder alone exports it.
func shardDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(namespace+"_"+name, help, append([]string{"queue", "shard"}, labels...), nil)
}

// statsCollector exports the contents of the shards. If the source fails or is
// slow, its metrics are missing, but the scrape does not fail: no value is
// better than an old one.
type statsCollector struct{ answers *cache[[]QueueStats] }

// Describe implements [prometheus.Collector].
func (c *statsCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{
		waitingDesc, dueDesc, claimedDesc, parkedDesc, deadDesc, oldestDesc,
		shardWaitingDesc, shardDueDesc, shardParkedDesc, shardClaimedDesc, shardOldestDesc, shardHolderDesc,
	} {
		ch <- desc
	}
}

// Collect implements [prometheus.Collector].
func (c *statsCollector) Collect(ch chan<- prometheus.Metric) {
	all := c.answers.get()
	for _, stats := range all {
		collectShard(ch, &stats)
	}
	for _, stats := range merge(all) {
		gauge := func(desc *prometheus.Desc, value float64) {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, stats.Queue)
		}
		gauge(waitingDesc, float64(stats.Waiting))
		gauge(dueDesc, float64(stats.Due))
		gauge(claimedDesc, float64(stats.InFlight))
		gauge(parkedDesc, float64(stats.Parked))
		gauge(deadDesc, float64(stats.Dead))
		gauge(oldestDesc, stats.OldestDueAge.Seconds())
	}
}

// collectShard exports what one shard holds.
func collectShard(ch chan<- prometheus.Metric, stats *QueueStats) {
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		labels = append([]string{stats.Queue, strconv.Itoa(stats.Shard)}, labels...)
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	gauge(shardWaitingDesc, float64(stats.Waiting))
	gauge(shardDueDesc, float64(stats.Due))
	gauge(shardParkedDesc, float64(stats.Parked))
	gauge(shardClaimedDesc, float64(stats.InFlight))
	gauge(shardOldestDesc, stats.OldestDueAge.Seconds())
	gauge(shardHolderDesc, 1, stats.Instance)
}

// merge adds up entries of the same queue: two series with the same labels
// would make the scrape fail.
func merge(all []QueueStats) []QueueStats {
	byQueue := map[string]QueueStats{}
	for _, stats := range all {
		sum := byQueue[stats.Queue]
		sum.Queue = stats.Queue
		sum.Waiting += stats.Waiting
		sum.Due += stats.Due
		sum.Parked += stats.Parked
		sum.InFlight += stats.InFlight
		sum.Dead += stats.Dead
		sum.OldestDueAge = max(sum.OldestDueAge, stats.OldestDueAge)
		byQueue[stats.Queue] = sum
	}
	return slices.Collect(maps.Values(byQueue))
}
