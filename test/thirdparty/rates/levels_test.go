package rates

import (
	"slices"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/assert"
)

// minute is what happens in one, on a made-up deployment.
type minute struct {
	// published are messages, of which late came more than 5 s late; calls are of the API, of which failed did.
	published, late, calls, failed float64
	// failures are attempts to publish that failed.
	failures float64
	age      float64 // of the oldest due message
	isPaused bool
	isRated  bool
}

// chapter is a time in which each minute is the same.
type chapter struct {
	lasts time.Duration
	minute
	// isLong is for days at which no rule looks: what they record then is written down for them.
	isLong bool
	// fires are the alerts that fire at its end; began are those that may begin to fire within it, and nil is the same.
	fires, began []string
}

// The alerts of the service levels.
const (
	lateBurn, lateBurnSlow   = "DelaybridgeLateBurn", "DelaybridgeLateBurnSlow"
	callsBurn, callsBurnSlow = "DelaybridgeCallsBurn", "DelaybridgeCallsBurnSlow"
)

// fine is a minute of a busy queue in which nothing is wrong.
var fine = minute{published: 6000, late: 1, calls: 6000, failed: 1}

// lateBy is such a minute with so many late messages, failing one with so many failed calls.
func lateBy(n float64) minute  { m := fine; m.late = n; return m }
func failing(n float64) minute { m := fine; m.failed = n; return m }

// TestServiceLevels: the burn of an error budget fires at its pace, and no longer than it lasts;
// lateness that somebody has asked for burns nothing.
func TestServiceLevels(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	outage := minute{published: 0, calls: 6000, age: 600}
	catchUp := minute{published: 60_000, late: 59_000, calls: 6000, age: 300}
	paused, rated := outage, catchUp
	paused.isPaused, rated.isRated = true, true
	failingRated := rated
	failingRated.failures = 100
	before := chapter{lasts: 4 * day, minute: fine, isLong: true}
	for name, story := range map[string][]chapter{
		"nothing is wrong": {before, {lasts: time.Hour, minute: fine}},
		"a sixteenth of the messages is late for some minutes": {
			before,
			{lasts: 10 * time.Minute, minute: lateBy(360)}, // 6 %, of the hour 1 %
			{lasts: 10 * time.Minute, minute: lateBy(360), fires: []string{lateBurn}},
			{lasts: 10 * time.Minute, minute: fine}, // The short window is over.
		},
		"one in a hundred is late for hours": {
			before,
			{lasts: 3 * time.Hour, minute: lateBy(60)},
			{lasts: time.Hour, minute: lateBy(60), fires: []string{lateBurn}},
			{lasts: 40 * time.Minute, minute: fine, began: []string{}},
		},
		"one in four hundred is late for days": {
			before,
			{lasts: day, minute: lateBy(15), isLong: true},
			{lasts: 10 * time.Minute, minute: lateBy(15)},
			{lasts: day, minute: lateBy(15), isLong: true},
			{lasts: 10 * time.Minute, minute: lateBy(15), fires: []string{lateBurnSlow}},
			{lasts: 7 * time.Hour, minute: fine, isLong: true},
			{lasts: 10 * time.Minute, minute: fine},
		},
		"a few messages of a quiet queue are late": {
			{lasts: day, minute: minute{published: 0.1, calls: 0.1}, isLong: true},
			{lasts: 30 * time.Minute, minute: minute{published: 0.2, late: 0.2, calls: 0.2, failed: 0.2}},
		},
		"the broker is away for ten minutes": {
			before,
			{lasts: 10 * time.Minute, minute: outage},
			{lasts: 5 * time.Minute, minute: catchUp, fires: []string{lateBurn, lateBurnSlow}},
			{lasts: 40 * time.Minute, minute: fine, fires: []string{lateBurnSlow}, began: []string{}},
		},
		"a queue is paused, and resumed": {
			before,
			{lasts: 30 * time.Minute, minute: paused},
			{lasts: 20 * time.Minute, minute: catchUp},
			{lasts: 20 * time.Minute, minute: fine},
			{lasts: 5 * time.Minute, minute: catchUp, fires: []string{lateBurn, lateBurnSlow}}, // This is nobody's will.
		},
		"a rate holds messages back": {
			before,
			{lasts: 30 * time.Minute, minute: rated},
			{lasts: 20 * time.Minute, minute: fine},
		},
		"the broker refuses messages of a queue with a rate": {
			before,
			{lasts: 15 * time.Minute, minute: failingRated, fires: []string{lateBurn, lateBurnSlow}},
		},
		"a sixteenth of the calls fails for some minutes": {
			before,
			{lasts: 10 * time.Minute, minute: failing(360)},
			{lasts: 10 * time.Minute, minute: failing(360), fires: []string{callsBurn}},
			{lasts: 10 * time.Minute, minute: fine},
		},
		"one call in four hundred fails for days": {
			before,
			{lasts: 2 * day, minute: failing(15), isLong: true},
			{lasts: 10 * time.Minute, minute: failing(15), fires: []string{callsBurnSlow}},
			{lasts: 7 * time.Hour, minute: fine, isLong: true},
			{lasts: 10 * time.Minute, minute: fine},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &book{series: newSeries(t)}
			b.evaluation = newEvaluation(b.series)
			b.groups = slices.DeleteFunc(b.groups, func(g *ruleGroup) bool { return g.every != time.Minute }) // The others have their own tests.
			for i, c := range story {
				if c.isLong {
					b.skip(c)
					continue
				}
				began := b.tell(c)
				assert.ElementsMatch(t, c.fires, b.firing(), "at the end of chapter %d", i)
				if c.began == nil {
					c.began = c.fires
				}
				assert.Subset(t, c.began, began, "within chapter %d", i)
			}
		})
	}
}

// book tells the series of a made-up deployment, a minute at a time.
type book struct {
	*series
	*evaluation

	sum minute
}

// tell returns which alerts have begun to fire meanwhile.
func (b *book) tell(c chapter) (began []string) {
	before := b.firing()
	for range int(c.lasts / time.Minute) {
		b.now = b.now.Add(time.Minute)
		b.write(c.minute)
		b.evaluate()
		now := b.firing()
		for _, name := range now {
			if !slices.Contains(before, name) {
				began = append(began, name)
			}
		}
		before = now
	}
	return began
}

// skip has time pass without a look.
func (b *book) skip(c chapter) {
	const second = 60
	for range int(c.lasts / time.Minute) {
		b.now = b.now.Add(time.Minute)
		b.write(c.minute)
		for name, n := range map[string]float64{"delaybridge:published:rate2m": c.published / second, "delaybridge:late:rate2m": c.late / second} {
			b.record(labels.FromStrings(model.MetricNameLabel, name, "namespace", ours, "queue", "orders"), n)
		}
	}
}

func (b *book) write(m minute) {
	b.sum.published, b.sum.late = b.sum.published+m.published, b.sum.late+m.late
	b.sum.calls, b.sum.failed, b.sum.failures = b.sum.calls+m.calls, b.sum.failed+m.failed, b.sum.failures+m.failures
	b.put("delaybridge_lateness_seconds_count", b.sum.published)
	b.put("delaybridge_lateness_seconds_bucket", b.sum.published-b.sum.late, "le", "5.0")
	b.put("delaybridge_api_request_seconds_count", b.sum.calls-b.sum.failed, "code", "200")
	b.put("delaybridge_api_request_seconds_count", b.sum.failed, "code", "503")
	b.put("delaybridge_publish_failures_total", b.sum.failures, "class", "unavailable")
	b.put("delaybridge_oldest_due_age_seconds", m.age)
	if m.isPaused {
		b.put("delaybridge_paused", 1, "topic", "")
	}
	if m.isRated {
		b.put("delaybridge_rate_limit", 1000, "topic", "")
	}
	b.stale()
}

// put adds a value of the one instance, and queue.
func (b *book) put(name string, n float64, more ...string) {
	b.note(labels.FromStrings(append([]string{model.MetricNameLabel, name, "queue", "orders"}, more...)...), "a", n)
}
