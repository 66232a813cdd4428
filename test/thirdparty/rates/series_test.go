package rates

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/stretchr/testify/require"
)

// scrapeEvery is the distance of two scrapes on the clock of the series.
const scrapeEvery = 15 * time.Second

// sample is one value of a series.
type sample struct {
	ms    int64
	value float64
}

func (s sample) T() int64                      { return s.ms }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.value }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

// series are what was scraped, on a clock of their own. It implements
// [storage.Queryable].
type series struct {
	t       *testing.T
	now     time.Time
	scraped []scrape
	targets map[string]bool // instances that are to be scraped, whether they answer or not
	engine  *promql.Engine
	labels  map[string]labels.Labels
	names   map[string][]string // by a metric's name, the keys of its series, in order
	values  map[string][]chunks.Sample
	// recorded are the keys of series that rules have made.
	recorded map[string]bool
	// neighbour is another deployment in the same Prometheus, with the same names, if there is
	// one: it lives as this one does until it is frozen, and then goes on as it was.
	neighbour map[string]sample
	frozen    bool
}

// The namespaces of the deployment and of its neighbour.
const ours, theirs = "shop", "other"

// scrape is when one took place: by our clock, and by that of the series.
type scrape struct{ ours, series time.Time }

func newSeries(t *testing.T) *series {
	now := time.Now().Truncate(time.Second)
	return &series{
		t: t, now: now, scraped: []scrape{{now, now}}, targets: map[string]bool{}, labels: map[string]labels.Labels{},
		names: map[string][]string{}, values: map[string][]chunks.Sample{}, recorded: map[string]bool{},
		engine: promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, LookbackDelta: 5 * time.Minute}),
	}
}

// scrape takes the metrics of the instances, by address, once. Those that were scraped before
// and are not there any more are still targets, as in a file of them.
func (s *series) scrape(instances map[string]string) {
	s.t.Helper()
	s.now = s.now.Add(scrapeEvery)
	for instance, address := range instances {
		s.targets[instance] = true
		for _, found := range s.fetch(address) {
			n := valueOf(s.t, found)
			if strings.HasSuffix(found.Get(model.MetricNameLabel), "_timestamp_seconds") {
				n = s.instant(n)
			}
			s.note(found, instance, n)
		}
	}
	for instance := range s.targets {
		up := 0.0
		if instances[instance] != "" {
			up = 1
		}
		s.note(labels.FromStrings(model.MetricNameLabel, "up"), instance, up)
	}
	for key, last := range s.neighbour {
		if strings.HasSuffix(s.labels[key].Get(model.MetricNameLabel), "_timestamp_seconds") {
			last.value += s.now.Sub(time.UnixMilli(last.ms)).Seconds() // As long ago as it was.
		}
		s.values[key] = append(s.values[key], sample{s.now.UnixMilli(), last.value})
	}
	s.scraped = append(s.scraped, scrape{time.Now(), s.now})
	s.stale()
}

// freeze has the neighbour go on as it is now.
func (s *series) freeze() { s.frozen = true }

// note adds a value of an instance, as Prometheus labels it.
func (s *series) note(of labels.Labels, instance string, n float64) {
	b := labels.NewBuilder(of).Set("job", "delaybridge").Set("instance", instance).Del("value")
	key := s.keep(b.Set("namespace", ours).Labels())
	s.values[key] = append(s.values[key], sample{s.now.UnixMilli(), n})
	if s.neighbour != nil && !s.frozen {
		s.neighbour[s.keep(b.Set("namespace", theirs).Labels())] = sample{s.now.UnixMilli(), n}
	}
}

func (s *series) keep(of labels.Labels) (key string) {
	key = of.String()
	if _, known := s.labels[key]; !known {
		s.labels[key] = of
		name := of.Get(model.MetricNameLabel)
		i, _ := slices.BinarySearch(s.names[name], key)
		s.names[name] = slices.Insert(s.names[name], i, key)
	}
	return key
}

// instant is when on the clock of the series something happened, in seconds: at the last
// scrape before it.
func (s *series) instant(ours float64) float64 {
	before := s.scraped[0].series
	for _, one := range s.scraped[1:] {
		if float64(one.ours.UnixMilli()) < 1000*ours {
			before = one.series
		}
	}
	return float64(before.Unix())
}

// valueOf is the value of a metric, as fetch returns it.
func valueOf(t *testing.T, found labels.Labels) float64 {
	t.Helper()
	value, err := strconv.ParseFloat(found.Get("value"), 64)
	require.NoError(t, err)
	return value
}

// stale ends the series that were not scraped any more, as Prometheus does.
func (s *series) stale() {
	for key, values := range s.values {
		if last := values[len(values)-1]; !s.recorded[key] && last.T() != s.now.UnixMilli() && !value.IsStaleNaN(last.F()) {
			s.values[key] = append(values, sample{s.now.UnixMilli(), math.Float64frombits(value.StaleNaN)})
		}
	}
}

// fetch reads the metrics of one instance; "value" is a label of each.
func (s *series) fetch(address string) (all []labels.Labels) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://"+address+"/metrics", nil)
	require.NoError(s.t, err)
	request.Header.Set("Accept-Encoding", "identity") // Compressing takes a sixth of the time.
	response, err := http.DefaultClient.Do(request)
	require.NoError(s.t, err)
	defer func() { _ = response.Body.Close() }()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(response.Body)
	require.NoError(s.t, err)
	for name, family := range families {
		for _, metric := range family.GetMetric() {
			all = append(all, samples(name, metric)...)
		}
	}
	return all
}

// samples are the series that Prometheus makes of a metric.
func samples(name string, metric *dto.Metric) (all []labels.Labels) {
	of := map[string]string{}
	for _, pair := range metric.GetLabel() {
		of[pair.GetName()] = pair.GetValue()
	}
	add := func(name string, value any) {
		of[model.MetricNameLabel], of["value"] = name, fmt.Sprint(value)
		all = append(all, labels.FromMap(of))
	}
	switch histogram := metric.GetHistogram(); {
	case metric.GetCounter() != nil:
		add(name, metric.GetCounter().GetValue())
	case metric.GetGauge() != nil:
		add(name, metric.GetGauge().GetValue())
	case histogram != nil:
		add(name+"_count", histogram.GetSampleCount())
		add(name+"_sum", histogram.GetSampleSum())
		for _, bucket := range histogram.GetBucket() {
			of["le"] = fmt.Sprint(bucket.GetUpperBound())
			add(name+"_bucket", bucket.GetCumulativeCount())
		}
	}
	return all
}

// query is the one value that an expression has now.
func (s *series) query(format string, args ...any) float64 {
	s.t.Helper()
	text := fmt.Sprintf(format, args...)
	query, err := s.engine.NewInstantQuery(s.t.Context(), s, nil, text, s.now)
	require.NoError(s.t, err)
	defer query.Close()
	result := query.Exec(s.t.Context())
	vector, err := result.Vector()
	require.NoError(s.t, err, text)
	require.Len(s.t, vector, 1, text)
	return vector[0].F
}

// Querier implements [storage.Queryable].
func (s *series) Querier(from, to int64) (storage.Querier, error) {
	return &querier{s, from, to}, nil
}

type querier struct {
	*series

	from, to int64
}

// Select implements [storage.Querier].
func (q *querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	var found []storage.Series
	for _, key := range q.named(matchers) {
		matches := func(m *labels.Matcher) bool { return m.Matches(q.labels[key].Get(m.Name)) }
		if slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !matches(m) }) {
			continue
		}
		values := q.values[key]
		first, last := since(values, q.from), since(values, q.to+1)
		found = append(found, storage.NewListSeries(q.labels[key], values[first:last]))
	}
	return &list{found, -1}
}

// named are the keys of the series with the name that is asked for, in order.
func (q *querier) named(matchers []*labels.Matcher) []string {
	i := slices.IndexFunc(matchers, func(m *labels.Matcher) bool {
		return m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual
	})
	require.GreaterOrEqual(q.t, i, 0, "every expression names its metric")
	return q.names[matchers[i].Value]
}

// since is the index of the first value of that time or later.
func since(values []chunks.Sample, ms int64) int {
	i, _ := slices.BinarySearchFunc(values, ms, func(one chunks.Sample, ms int64) int { return cmp.Compare(one.T(), ms) })
	return i
}

// LabelValues implements [storage.Querier]; the engine does not ask.
func (*querier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

// LabelNames implements [storage.Querier]; the engine does not ask.
func (*querier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

// Close implements [storage.Querier].
func (*querier) Close() error { return nil }

// list is a [storage.SeriesSet].
type list struct {
	series []storage.Series
	at     int
}

func (l *list) Next() bool                      { l.at++; return l.at < len(l.series) }
func (l *list) At() storage.Series              { return l.series[l.at] }
func (*list) Err() error                        { return nil }
func (*list) Warnings() annotations.Annotations { return nil }
