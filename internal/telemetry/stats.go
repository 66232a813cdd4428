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
	// statsFor is how long an answer is used again: several scrapers, and a
	// person who reloads the page, cost Redis one look a second.
	statsFor = time.Second
)

// QueueStats is what a shard of a queue holds that this instance holds.
type QueueStats struct {
	Queue string
	Shard int
	// Instance is the holder; without one there are no series of the shard, only
	// of the queue.
	Instance string
	// Waiting counts messages that wait, Due those of them that are due.
	Waiting, Due int64
	// InFlight counts messages that are claimed and not settled, by whomever.
	InFlight int64
	// Dead counts dead letters.
	Dead int64
	// OldestDueAge is how long ago the first waiting message was due; 0 if none is due.
	OldestDueAge time.Duration
	// Counters are those of the scripts: scheduled, published, …
	Counters map[string]int64
}

// StatsSource reads from Redis.
type StatsSource interface {
	// Stats returns an entry for each shard that this instance holds, so that the
	// sum over the instances is right. A queue of which a shard did
	// not answer is left out, and the error says why. ctx has a deadline.
	Stats(ctx context.Context) ([]QueueStats, error)
}

// RegisterStats adds the metrics of the shards, read from the source at each
// scrape. ctx lasts as long as the process serves metrics: when it ends, so
// does a read that is under way. It panics where it is called twice.
func (m *Metrics) RegisterStats(ctx context.Context, source StatsSource) {
	c := &statsCollector{source: source, deadline: func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, statsTimeout)
	}}
	c.errors = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: namespace, Name: "stats_errors_total", Help: "Reads of the shards' statistics that failed, wholly or for a queue.",
	})
	m.registry.MustRegister(c)
}

// counterHelp has the counters that are exported, by the name that the scripts
// give them.
var counterHelp = map[string]string{
	"scheduled":            "Messages accepted: created, or put in the place of another.",
	"published":            "Messages removed because the broker acknowledged them.",
	"retried":              "Messages put back because the broker refused them.",
	"dead_lettered":        "Messages moved to the dead letters.",
	"cancelled":            "Messages removed by cancel.",
	"replaced":             "Messages removed because another took their place.",
	"redriven":             "Dead letters put back.",
	"purged":               "Messages removed by an operator.",
	"dropped":              "Messages lost with a shard, as the database no longer knows them.",
	"rescheduled":          "Messages given another due time.",
	"reclaimed":            "Messages taken back from claims that were not settled in time.",
	"released":             "Messages put back at their due time, no attempt counted.",
	"stale_settles":        "Messages settled after their claim was lost.",
	"suspected_duplicates": "Messages of which a second copy may have been published.",
}

var (
	counterDescs = describeCounters()
	waitingDesc  = queueDesc("waiting", "Messages that wait for their due time or for a claim.")
	dueDesc      = queueDesc("due", "Waiting messages that are due.")
	claimedDesc  = queueDesc("claimed", "Messages that are claimed and not settled, by whichever instance.")
	deadDesc     = queueDesc("dead", "Dead letters.")
	oldestDesc   = queueDesc("oldest_due_age_seconds", "How long ago the first waiting message was due; 0 if none is due.")
)

func queueDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(namespace+"_"+name, help+" In the shards that this instance holds.", []string{"queue"}, nil)
}

var (
	shardWaitingDesc = shardDesc("shard_waiting", "Messages of the shard that wait for their due time or for a claim.")
	shardDueDesc     = shardDesc("shard_due", "Waiting messages of the shard that are due.")
	shardClaimedDesc = shardDesc("shard_in_flight", "Messages of the shard that are claimed and not settled, by whichever instance.")
	shardOldestDesc  = shardDesc("shard_oldest_due_age_seconds", "How long ago the first waiting message of the shard was due; 0 if none is due.")
	shardHolderDesc  = shardDesc("shard_holder", "Always 1; the labels tell which instance may poll the shard.", "instance")
)

// shardDesc describes a metric of one shard. Its holder alone exports it.
func shardDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(namespace+"_"+name, help, append([]string{"queue", "shard"}, labels...), nil)
}

func describeCounters() map[string]*prometheus.Desc {
	descs := make(map[string]*prometheus.Desc, len(counterHelp))
	for name, help := range counterHelp {
		descs[name] = queueDesc(name+"_total", help)
	}
	return descs
}

// statsCollector exports what a source says. A source that fails or is slow
// makes its own metrics missing, never the scrape fail.
type statsCollector struct {
	source   StatsSource
	deadline func() (context.Context, context.CancelFunc)
	errors   prometheus.Counter

	mu     sync.Mutex
	readAt time.Time
	last   []QueueStats
}

// Describe implements [prometheus.Collector].
func (c *statsCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range counterDescs {
		ch <- desc
	}
	for _, desc := range []*prometheus.Desc{
		waitingDesc, dueDesc, claimedDesc, deadDesc, oldestDesc, c.errors.Desc(),
		shardWaitingDesc, shardDueDesc, shardClaimedDesc, shardOldestDesc, shardHolderDesc,
	} {
		ch <- desc
	}
}

// Collect implements [prometheus.Collector].
func (c *statsCollector) Collect(ch chan<- prometheus.Metric) {
	all := c.read()
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
		gauge(deadDesc, float64(stats.Dead))
		gauge(oldestDesc, stats.OldestDueAge.Seconds())
		// All of them, also those that have never been counted: an alert on a
		// missing series does not fire.
		for name, desc := range counterDescs {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(stats.Counters[name]), stats.Queue)
		}
	}
	c.errors.Collect(ch)
}

// collectShard exports what one shard holds.
func collectShard(ch chan<- prometheus.Metric, stats *QueueStats) {
	if stats.Instance == "" {
		return
	}
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		labels = append([]string{stats.Queue, strconv.Itoa(stats.Shard)}, labels...)
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	gauge(shardWaitingDesc, float64(stats.Waiting))
	gauge(shardDueDesc, float64(stats.Due))
	gauge(shardClaimedDesc, float64(stats.InFlight))
	gauge(shardOldestDesc, stats.OldestDueAge.Seconds())
	gauge(shardHolderDesc, 1, stats.Instance)
}

// read asks the source, or returns what it said within the last second.
// Scrapes at the same time wait for one answer.
func (c *statsCollector) read() []QueueStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.readAt.IsZero() && time.Since(c.readAt) < statsFor {
		return c.last
	}
	ctx, cancel := c.deadline()
	defer cancel()
	all, err := c.source.Stats(ctx)
	if err != nil {
		c.errors.Inc()
	}
	c.last, c.readAt = all, time.Now()
	return c.last
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
		sum.InFlight += stats.InFlight
		sum.Dead += stats.Dead
		sum.OldestDueAge = max(sum.OldestDueAge, stats.OldestDueAge)
		if sum.Counters == nil {
			sum.Counters = map[string]int64{}
		}
		for name, n := range stats.Counters {
			sum.Counters[name] += n
		}
		byQueue[stats.Queue] = sum
	}
	return slices.Collect(maps.Values(byQueue))
}
