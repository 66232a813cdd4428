package telemetry

import (
	"context"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// QueueCounters are the scripts' counters for a whole queue, the same for all
// callers.
type QueueCounters struct {
	Queue string
	// Life changes if the queue is made again after a wipe of Redis.
	Life string
	// Retired are the counters of shards that were dropped, by name.
	Retired map[string]int64
	// Shards are those of each shard, by name; nil if it has not answered.
	Shards []map[string]int64
}

// counterHelp has the counters of whole queues that are exported, by the name
// that the scripts give them.
var counterHelp = map[string]string{
	"scheduled":   "Messages accepted: created, or put in the place of another.",
	"cancelled":   "Messages removed by cancel.",
	"rescheduled": "Messages given another due time.",
	"replaced":    "Messages removed because another took their place.",
	"redriven":    "Dead letters put back.",
	"purged":      "Messages removed by an operator.",
	"dropped":     "Messages dropped unpublished because they were too late.",
}

// counterCollector exports the scripts' counters: every instance exports those
// of all shards, so that nothing jumps when a shard changes hands. A value
// never decreases unless the queue was wiped: Redis forgets a little in a
// failover, and Prometheus takes any decrease for a restart from 0.
type counterCollector struct {
	answers *cache[[]counterSums]
	source  StatsSource
	descs   map[string]*prometheus.Desc

	totals map[string]*queueTotals // by queue; used by read alone
}

// counterSums are the sums of one queue.
type counterSums struct {
	queue string
	sums  map[string]int64
}

func newCounterCollector(ctx context.Context, source StatsSource, errors prometheus.Counter) *counterCollector {
	c := &counterCollector{source: source, descs: map[string]*prometheus.Desc{}, totals: map[string]*queueTotals{}}
	for name, help := range counterHelp {
		help += " The queue's, the same on every instance: take max by (queue)."
		c.descs[name] = prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name+"_total"), help, []string{"queue"}, nil)
	}
	c.answers = &cache[[]counterSums]{ctx: ctx, read: c.read, errors: errors}
	return c
}

// read asks the source. It is called by one goroutine at a time.
func (c *counterCollector) read(ctx context.Context) (all []counterSums, err error) {
	answers, err := c.source.Counters(ctx, slices.Sorted(maps.Keys(counterHelp)))
	for _, answer := range answers {
		if c.totals[answer.Queue] == nil {
			c.totals[answer.Queue] = &queueTotals{}
		}
		if sums := c.totals[answer.Queue].take(answer); sums != nil {
			all = append(all, counterSums{answer.Queue, maps.Clone(sums)})
		}
	}
	return all, err
}

// Describe implements [prometheus.Collector].
func (c *counterCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range c.descs {
		ch <- desc
	}
}

// Collect implements [prometheus.Collector].
func (c *counterCollector) Collect(ch chan<- prometheus.Metric) {
	for _, queue := range c.answers.get() {
		// Export all of them, even those never counted, since an alert on a
		// missing series does not fire.
		for name, desc := range c.descs {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(queue.sums[name]), queue.queue)
		}
	}
}

// queueTotals are the counters of one queue over time, as this process has seen them.
type queueTotals struct {
	life   string
	shards []map[string]int64 // the last answer of each
	sums   map[string]int64   // nil before all shards have told theirs
}

// take adds up the shards' counters, with the last answer of a shard that has
// not answered now. The sums are nil if a shard has never answered.
func (t *queueTotals) take(answer QueueCounters) map[string]int64 {
	if answer.Life != t.life {
		*t = queueTotals{life: answer.Life}
	}
	known := slices.Clone(answer.Shards)
	sums := maps.Clone(answer.Retired)
	if sums == nil {
		sums = map[string]int64{}
	}
	answered := false
	for i := range known {
		answered = answered || known[i] != nil
		if known[i] == nil && i < len(t.shards) {
			known[i] = t.shards[i]
		}
	}
	t.shards = known
	if !answered || slices.ContainsFunc(known, func(shard map[string]int64) bool { return shard == nil }) {
		return nil
	}
	for _, shard := range known {
		for name, n := range shard {
			sums[name] += n
		}
	}
	for name, shown := range t.sums {
		sums[name] = max(sums[name], shown)
	}
	t.sums = sums
	return sums
}
