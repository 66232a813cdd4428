package telemetry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scrape returns the lines of the metrics that are ours.
func scrape(t *testing.T, m *Metrics) map[string]string {
	t.Helper()
	recorder := httptest.NewRecorder()
	m.Handler().ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, recorder.Code)
	lines := map[string]string{}
	for line := range strings.Lines(recorder.Body.String()) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && strings.HasPrefix(name, namespace) {
			lines[name] = value
		}
	}
	return lines
}

func TestInstruments(t *testing.T) {
	t.Parallel()
	m := New("v1.2.3")
	m.AddQueue("idle")
	m.ObserveLateness("orders", 3*time.Millisecond)
	m.ObserveLateness("orders", -time.Second)
	m.AddInFlight("orders", 5)
	m.AddInFlight("orders", -2)
	m.PublishFailure("orders", "retryable", "topic_missing")
	m.AddSink("events", func() bool { return true })
	m.AddSink("log", func() bool { return false })
	m.SinkMissing("events", "order.timeout")
	m.ShardsLost("orders", 2)
	m.DecodeError("orders")
	m.Stale("orders")
	m.Settled("orders", [...]int{message.VerbAck: 1, message.VerbRetry: 2, message.VerbDeadLetter: 3, message.VerbRelease: 4, message.VerbPark: 5, message.VerbDrop: 0}, 6)
	m.Settled("orders", [...]int{message.VerbAck: 1, message.VerbDrop: 0}, 0)
	m.Reclaimed("orders", 7)
	m.Layout("orders", "12-aa-bb", 16)
	m.Instances("orders", 3)
	lines := scrape(t, m)
	for name, want := range map[string]string{
		`delaybridge_lateness_seconds_bucket{queue="orders",le="0.002"}`:                              "1",
		`delaybridge_lateness_seconds_bucket{queue="orders",le="0.005"}`:                              "2",
		`delaybridge_lateness_seconds_bucket{queue="orders",le="300"}`:                                "2",
		`delaybridge_lateness_seconds_sum{queue="orders"}`:                                            "0.003",
		`delaybridge_lateness_seconds_count{queue="idle"}`:                                            "0",
		`delaybridge_in_flight{queue="orders"}`:                                                       "3",
		`delaybridge_in_flight{queue="idle"}`:                                                         "0",
		`delaybridge_publish_failures_total{class="retryable",queue="orders",reason="topic_missing"}`: "1",
		`delaybridge_sink_up{sink="events"}`:                                                          "1",
		`delaybridge_sink_up{sink="log"}`:                                                             "0",
		`delaybridge_sink_missing{sink="events",topic="order.timeout"}`:                               "1",
		`delaybridge_decode_errors_total{queue="orders"}`:                                             "1",
		`delaybridge_stale_settles_total{queue="orders"}`:                                             "1",
		`delaybridge_published_total{queue="orders"}`:                                                 "2",
		`delaybridge_published_total{queue="idle"}`:                                                   "0",
		`delaybridge_retried_total{queue="orders"}`:                                                   "2",
		`delaybridge_dead_lettered_total{queue="orders"}`:                                             "3",
		`delaybridge_released_total{queue="orders"}`:                                                  "4",
		`delaybridge_parked_total{queue="orders"}`:                                                    "5",
		`delaybridge_suspected_duplicates_total{queue="orders"}`:                                      "6",
		`delaybridge_reclaimed_total{queue="orders"}`:                                                 "7",
		`delaybridge_layout_epoch{queue="orders"}`:                                                    "12",
		`delaybridge_layout_shards{queue="orders"}`:                                                   "16",
		`delaybridge_shards_lost_total{queue="orders"}`:                                               "2",
		`delaybridge_shards_lost_total{queue="idle"}`:                                                 "0",
		`delaybridge_instances{queue="orders"}`:                                                       "3",
	} {
		assert.Equal(t, want, lines[name], name)
	}
	assert.Contains(t, fmt.Sprint(lines), `delaybridge_build_info{goversion="go1.`)
	problems, err := testutil.GatherAndLint(m.registry)
	require.NoError(t, err)
	assert.Empty(t, problems)
}

func TestMissingTopicsAreBounded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	m := newMissingTopics(func() time.Time { return now })
	for i := range 3 * missingMax {
		m.note("events", fmt.Sprint("topic-", i))
	}
	m.note("log", "topic")
	assert.Equal(t, missingMax+2, testutil.CollectAndCount(m), "and one for the rest of each sink")

	now = now.Add(missingFor)
	m.note("events", "topic-1\xff")
	m.note("events", "topic-7")
	assert.Contains(t, m.seen, missingTopic{"events", "topic-7"})
	now = now.Add(time.Second)
	assert.Equal(t, 2, testutil.CollectAndCount(m), "the others were missed too long ago; that one is shown as other")
	now = now.Add(missingFor)
	assert.Zero(t, testutil.CollectAndCount(m))
}

// source answers with what a test sets before a scrape.
type source struct {
	calls    int
	stats    []QueueStats
	counters []QueueCounters
	err      error
	hang     bool
}

func (s *source) Stats(ctx context.Context) ([]QueueStats, error) {
	s.calls++
	if s.hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.stats, s.err
}

func (s *source) Counters(context.Context, []string) ([]QueueCounters, error) {
	return s.counters, s.err
}

func TestStats(t *testing.T) {
	t.Parallel()
	m := New("test")
	m.RegisterStats(t.Context(), &source{stats: []QueueStats{
		{Queue: "orders", Shard: 3, Instance: "me", Waiting: 10, Due: 4, InFlight: 3, Dead: 2, Parked: 3, OldestDueAge: 1500 * time.Millisecond},
		{Queue: "orders", Shard: 4, Instance: "me", Waiting: 1, Parked: 1, OldestDueAge: time.Second},
	}, counters: []QueueCounters{
		{Queue: "orders", Life: "a", Retired: map[string]int64{"scheduled": 100, "published": 7}, Shards: []map[string]int64{{"scheduled": 7}, {"scheduled": 2}}},
		{Queue: "idle", Life: "b", Shards: []map[string]int64{{}}},
	}})
	lines := scrape(t, m)
	for name, want := range map[string]string{
		`delaybridge_waiting{queue="orders"}`:                "11",
		`delaybridge_due{queue="orders"}`:                    "4",
		`delaybridge_claimed{queue="orders"}`:                "3",
		`delaybridge_dead{queue="orders"}`:                   "2",
		`delaybridge_oldest_due_age_seconds{queue="orders"}`: "1.5",
		`delaybridge_parked{queue="orders"}`:                 "4",
		`delaybridge_scheduled_total{queue="orders"}`:        "109",
		`delaybridge_stats_errors_total`:                     "0",

		`delaybridge_shard_waiting{queue="orders",shard="3"}`:                "10",
		`delaybridge_shard_due{queue="orders",shard="3"}`:                    "4",
		`delaybridge_shard_parked{queue="orders",shard="3"}`:                 "3",
		`delaybridge_shard_in_flight{queue="orders",shard="3"}`:              "3",
		`delaybridge_shard_oldest_due_age_seconds{queue="orders",shard="3"}`: "1.5",
		`delaybridge_shard_holder{instance="me",queue="orders",shard="3"}`:   "1",
	} {
		assert.Equal(t, want, lines[name], name)
	}
	for _, name := range []string{
		"scheduled", "cancelled", "rescheduled", "replaced", "redriven", "purged", "dropped",
	} {
		assert.Equal(t, "0", lines[`delaybridge_`+name+`_total{queue="idle"}`], name)
	}
	problems, err := testutil.GatherAndLint(m.registry)
	require.NoError(t, err)
	assert.Empty(t, problems)
}

func TestStatsThatFail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := New("test")
		s := &source{stats: []QueueStats{{Queue: "orders", Dead: 1}}}
		m.RegisterStats(t.Context(), s)
		assert.Equal(t, "1", scrape(t, m)[`delaybridge_dead{queue="orders"}`])

		s.stats, s.err = nil, errors.New("redis is away")
		scrape(t, m)
		assert.Equal(t, 1, s.calls, "a second scrape within a second asks nobody")

		time.Sleep(statsFor) //nolint:forbidigo // the clock is synctest's
		scrape(t, m)
		lines := scrape(t, m) // The errors of the one before.
		assert.Equal(t, "2", lines["delaybridge_stats_errors_total"], "the gauges' and the counters'")
		assert.NotContains(t, lines, `delaybridge_dead{queue="orders"}`, "no value is better than an old one")
		assert.Contains(t, fmt.Sprint(lines), "delaybridge_build_info")

		s.hang, s.err = true, nil
		time.Sleep(statsFor) //nolint:forbidigo // the clock is synctest's
		start := time.Now()
		scrape(t, m)
		assert.Equal(t, statsTimeout, time.Since(start))
		assert.Equal(t, "3", scrape(t, m)["delaybridge_stats_errors_total"])
	})
}

func TestLogger(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ level, format, want string }{
		"json":        {"info", "json", `"level":"INFO","msg":"shown","queue":"orders"}`},
		"text":        {"info", "text", `level=INFO msg=shown queue=orders`},
		"no terminal": {"debug", "auto", `"msg":"shown"`},
		"quiet":       {"warn", "json", ""},
		"unknown":     {"loud", "", `"msg":"shown"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			NewLogger(&out, NewLevel(test.level), test.format).Info("shown", "queue", "orders")
			if test.want == "" {
				assert.Empty(t, out.String())
			}
			assert.Contains(t, out.String(), test.want)
		})
	}
}
