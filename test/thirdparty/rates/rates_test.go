package rates

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

// The counters by their kind, as docs/operations.md has them added up.
var (
	own   = []string{"published", "retried", "dead_lettered", "reclaimed", "released", "parked", "stale_settles", "suspected_duplicates"}
	queue = []string{"scheduled", "cancelled", "rescheduled", "replaced", "purged"}
)

// quiet checks that nothing seems to have happened in the last so many scrapes.
func (f *fleet) quiet(scrapes int, what string) {
	f.t.Helper()
	window := fmt.Sprintf("%ds", scrapes*int(scrapeEvery.Seconds()))
	for _, name := range own {
		assert.Zero(f.t, f.query(`sum by (queue) (increase(delaybridge_%s_total[%s]))`, name, window), "%s: %s", what, name)
	}
	for _, name := range queue {
		assert.Zero(f.t, f.query(`max by (queue) (increase(delaybridge_%s_total[%s]))`, name, window), "%s: %s", what, name)
	}
}

// TestNoFalseSteps lets shards change hands, their number change, and instances
// restart, with nothing else happening: every increase is 0. And what happens is
// counted, once.
func TestNoFalseSteps(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 8, nil)
	f.start("a")
	f.start("b")
	f.held("a", "b")
	f.scrapes(2)
	f.traffic(40, 5, 4)
	f.scrapes(2)
	assert.InDelta(t, 40, f.query(`sum by (queue) (increase(delaybridge_published_total[60s]))`), 1)
	assert.InDelta(t, 4, f.query(`sum by (queue) (increase(delaybridge_dead_lettered_total[60s]))`), 0.5)
	assert.InDelta(t, 49, f.query(`max by (queue) (increase(delaybridge_scheduled_total[60s]))`), 1)
	assert.InDelta(t, 5, f.query(`max by (queue) (increase(delaybridge_cancelled_total[60s]))`), 0.5)
	assert.Zero(t, f.query(`max(delaybridge_scheduled_total) - min(delaybridge_scheduled_total)`), "the same on every instance")

	f.purge()
	f.scrapes(2)
	f.stops["a"]()
	f.held("b")
	f.scrapes(2)
	f.quiet(4, "takeover")

	f.start("a")
	f.held("a", "b")
	f.scrapes(2)
	f.quiet(4, "return")

	_, err := f.queue.Layouts().SetShards(t.Context(), 3)
	require.NoError(t, err)
	f.held("a", "b")
	f.forget()
	f.scrapes(2)
	f.quiet(4, "fewer shards")

	f.stops["b"]()
	f.start("b")
	f.held("a", "b")
	f.scrapes(2)
	f.quiet(4, "restart")
	f.traffic(10, 0, 0)
	f.scrapes(2)
	assert.Positive(t, f.query(`sum by (queue) (increase(delaybridge_published_total[60s]))`))
	assert.InDelta(t, 59, f.query(`max by (queue) (delaybridge_scheduled_total)`), 0)
}

// purge deletes the dead letters: they would keep an earlier layout alive.
func (f *fleet) purge() {
	f.t.Helper()
	var ids []string
	require.NoError(f.t, inspect.NewAdmin(f.queue).DeadLetters(f.t.Context(), func(letter message.DeadLetter) bool {
		ids = append(ids, letter.ID)
		return true
	}))
	require.NotEmpty(f.t, ids)
	_, err := inspect.NewAdmin(f.queue).Purge(f.t.Context(), ids)
	require.NoError(f.t, err)
}

// forget waits until the shards have drained, and makes that long ago, so that
// those of the earlier layout are dropped.
func (f *fleet) forget() {
	f.t.Helper()
	layout, err := f.queue.LoadLayout(f.t.Context())
	require.NoError(f.t, err)
	require.NotEmpty(f.t, layout.Earlier)
	f.await("drained", func() bool {
		for shard := range layout.InUse() {
			if stats, err := inspect.NewAdmin(f.queue).Stats(f.t.Context(), shard); err != nil || !stats.Drained {
				return false
			}
		}
		return true
	})
	for shard := range layout.InUse() {
		meta := fmt.Sprintf("%s:{orders:%d}:meta", f.prefix, shard)
		require.NoError(f.t, f.rdb.HSet(f.t.Context(), meta, "drained", layout.Epoch+" 1").Err())
	}
	f.await("forgotten", func() bool {
		layout, err := f.queue.LoadLayout(f.t.Context())
		return err == nil && len(layout.Earlier) == 0
	})
}

// TestOpenMetrics: what Prometheus asks for by itself can be read by its parser.
func TestOpenMetrics(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2, nil)
	f.start("a")
	f.held("a")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+f.addresses["a"]+"/metrics", nil)
	require.NoError(t, err)
	request.Header.Set("Accept", "application/openmetrics-text;version=1.0.0")
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	parser, err := textparse.New(body, response.Header.Get("Content-Type"), labels.NewSymbolTable(), textparse.ParserOptions{})
	require.NoError(t, err)
	found := map[string]bool{}
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if entry == textparse.EntrySeries {
			var of labels.Labels
			parser.Labels(&of)
			found[of.Get(model.MetricNameLabel)] = true
		}
	}
	for _, name := range []string{"parked", "parked_total", "waiting", "scheduled_total", "published_total"} {
		assert.True(t, found["delaybridge_"+name], name)
	}
}
