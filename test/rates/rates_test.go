package rates

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/app"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/sharding"
	"github.com/delaybridge/delaybridge/internal/store"
	"github.com/delaybridge/delaybridge/internal/testenv"
)

const patience = 40 * time.Second

// fleet are bridges that share the queue "orders".
type fleet struct {
	*series

	rdb           redis.UniversalClient
	prefix, topic string
	broker        string // its URL
	more          string // of the queue's configuration
	dropStream    func()
	queue         *store.Queue
	client        *delay.Client
	sent          int
	addresses     map[string]string
	stops         map[string]func()
}

func newFleet(t *testing.T, shards int) *fleet {
	f := &fleet{
		series: newSeries(t), broker: testenv.NATS(t), prefix: testenv.Name(t, "p"), topic: testenv.Name(t, "topic"),
		addresses: map[string]string{}, stops: map[string]func(){},
	}
	nc, err := nats.Connect(testenv.NATS(t))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: f.topic, Subjects: []string{f.topic}})
	require.NoError(t, err)
	f.dropStream = func() { require.NoError(t, js.DeleteStream(t.Context(), f.topic)) }
	f.rdb, err = app.NewRedis(f.config("test").Redis, "test")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, f.rdb.Close()) })
	f.queue = store.New(f.rdb, f.prefix, "orders")
	_, err = f.queue.Layouts().Ensure(t.Context(), store.Layout{Shards: shards, Sink: "nats", MaxMessage: 1 << 20})
	require.NoError(t, err)
	f.client, err = delay.NewClient(f.rdb, "orders", delay.WithPrefix(f.prefix))
	require.NoError(t, err)
	return f
}

func (f *fleet) config(instance string) *config.Config {
	cfg, err := config.Parse(fmt.Appendf(nil, `
prefix: %s
instance: %s
redis: {url: %q}
queues: {orders: {sink: events%s}}
sinks: {events: {type: nats, url: %q}}
admin: {listen: "127.0.0.1:0"}
drain_timeout: 5s
`, f.prefix, instance, testenv.Redis(f.t), f.more, f.broker), nil)
	require.NoError(f.t, err)
	return cfg
}

// start runs a bridge under that name until it is stopped.
func (f *fleet) start(name string) {
	listener, err := new(net.ListenConfig).Listen(f.t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(f.t, err)
	ctx, cancel := context.WithCancel(f.t.Context())
	ended := make(chan error, 1)
	cfg := f.config(name)
	logger := slog.New(slog.NewTextHandler(f.t.Output(), nil)).With("of", name)
	go func() { ended <- app.Run(ctx, cfg, logger, app.AdminListener(listener)) }()
	f.addresses[name] = listener.Addr().String()
	f.stops[name] = func() {
		delete(f.addresses, name)
		delete(f.stops, name)
		cancel()
		assert.NoError(f.t, <-ended)
	}
	f.t.Cleanup(func() {
		if stop := f.stops[name]; stop != nil {
			stop()
		}
	})
}

// held waits until all shards in use are held by the live instances.
func (f *fleet) held(live ...string) {
	f.t.Helper()
	require.Eventually(f.t, func() bool {
		layout, err := f.queue.LoadLayout(f.t.Context())
		if err != nil {
			return false
		}
		for shard := range layout.InUse() {
			stats, err := f.queue.Admin().Stats(f.t.Context(), shard)
			if err != nil || message.InstanceName(stats.Holder) != sharding.Owner("orders", shard, live) {
				return false
			}
		}
		return true
	}, patience, 10*time.Millisecond, "held by %v", live)
}

// traffic has messages published, cancelled and dead-lettered, and waits for that.
func (f *fleet) traffic(published, cancelled, dead int) {
	f.t.Helper()
	before := f.done()
	for i := range published + cancelled + dead {
		f.sent++
		id, when := fmt.Sprint("m", f.sent), delay.After(0)
		if i >= published {
			when = delay.After(time.Hour)
		}
		_, err := f.client.Schedule(f.t.Context(), delay.Message{ID: id, Topic: f.topic}, when)
		require.NoError(f.t, err)
		switch {
		case i >= published+cancelled:
			f.spoil(id)
		case i >= published:
			require.NoError(f.t, f.client.Cancel(f.t.Context(), delay.Ref{ID: id}))
		}
	}
	require.Eventually(f.t, func() bool { return f.done() == before+published+dead }, patience, 10*time.Millisecond)
}

// spoil makes a waiting message one that cannot be read, and due.
func (f *fleet) spoil(id string) {
	f.t.Helper()
	layout, err := f.queue.LoadLayout(f.t.Context())
	require.NoError(f.t, err)
	shard := fmt.Sprintf("%s:{orders:%d}:", f.prefix, sharding.Home("", id, layout.Shards))
	require.NoError(f.t, f.rdb.HSet(f.t.Context(), shard+"msg", id, "spoilt").Err())
	require.NoError(f.t, f.rdb.ZAdd(f.t.Context(), shard+"due", redis.Z{Score: 1, Member: id}).Err())
	require.NoError(f.t, f.rdb.Publish(f.t.Context(), shard+"wake", "").Err()) // Else within two seconds.
}

// done is how many messages were published or died, over all shards.
func (f *fleet) done() int {
	f.t.Helper()
	counters, err := f.queue.Admin().Counters(f.t.Context(), []string{"published", "dead_lettered"})
	require.NoError(f.t, err)
	sum := counters.Retired["published"] + counters.Retired["dead_lettered"]
	for _, shard := range counters.Shards {
		sum += shard["published"] + shard["dead_lettered"]
	}
	return int(sum)
}

// scrapes scrapes all instances several times.
func (f *fleet) scrapes(times int) {
	f.t.Helper()
	for range times {
		f.settle()
		f.scrape(f.addresses)
	}
}

// settle waits until an answer of Redis is not used again any more.
func (f *fleet) settle() {
	timer := time.NewTimer(1100 * time.Millisecond)
	defer timer.Stop()
	<-timer.C
}

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
	f := newFleet(t, 8)
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
	assert.EqualValues(t, 59, f.query(`max by (queue) (delaybridge_scheduled_total)`))
}

// purge deletes the dead letters: they would keep an earlier layout alive.
func (f *fleet) purge() {
	f.t.Helper()
	var ids []string
	require.NoError(f.t, f.queue.Admin().DeadLetters(f.t.Context(), func(letter message.DeadLetter) bool {
		ids = append(ids, letter.ID)
		return true
	}))
	require.NotEmpty(f.t, ids)
	_, err := f.queue.Admin().Purge(f.t.Context(), ids)
	require.NoError(f.t, err)
}

// forget waits until the shards have drained, and makes that long ago, so that
// those of the earlier layout are dropped.
func (f *fleet) forget() {
	f.t.Helper()
	layout, err := f.queue.LoadLayout(f.t.Context())
	require.NoError(f.t, err)
	require.NotEmpty(f.t, layout.Earlier)
	require.Eventually(f.t, func() bool {
		for shard := range layout.InUse() {
			if stats, err := f.queue.Admin().Stats(f.t.Context(), shard); err != nil || !stats.Drained {
				return false
			}
		}
		return true
	}, patience, 20*time.Millisecond, "drained")
	for shard := range layout.InUse() {
		meta := fmt.Sprintf("%s:{orders:%d}:meta", f.prefix, shard)
		require.NoError(f.t, f.rdb.HSet(f.t.Context(), meta, "drained", layout.Epoch+" 1").Err())
	}
	require.Eventually(f.t, func() bool {
		layout, err := f.queue.LoadLayout(f.t.Context())
		return err == nil && len(layout.Earlier) == 0
	}, patience, 20*time.Millisecond, "forgotten")
}

// TestOpenMetrics: what Prometheus asks for by itself can be read by its parser.
func TestOpenMetrics(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
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
