package rates

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/common/model"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/app"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/sharding"
)

// patience is how long a test waits for what must happen.
const patience = 3 * time.Minute

// servers are the URLs of what bridges work with.
type servers struct {
	redis, broker string
	database      string // with an outbox; empty: there is none
}

// fleet are bridges that share the queue "orders".
type fleet struct {
	*series
	servers

	link *testenv.Proxy  // before one of the servers, see through
	own  *testenv.Server // one that no other fleet has

	prefix, topic string
	keys          string // more of the queue's configuration
	auth          string // admin.auth of it; empty: nobody needs a credential
	issuerKeys    string // the file with the keys of an issuer, where auth names one
	teams         string // the folder of the queue files; empty: there are none
	isDeclared    bool   // queues may be declared by the API
	rdb           redis.UniversalClient
	db            *sql.DB
	js            jetstream.JetStream
	queue         *store.Queue
	client        *delay.Client
	sent          int
	addresses     map[string]string
	stops         map[string]func()
}

// newFleet makes all but the bridges. with may change what they work with.
func newFleet(t *testing.T, shards int, with func(*fleet)) *fleet {
	t.Helper()
	f := &fleet{
		series: newSeries(t), servers: servers{redis: testenv.Redis(t), broker: testenv.NATS(t)},
		prefix: testenv.Name(t, "p"), topic: testenv.Name(t, "topic"),
		addresses: map[string]string{}, stops: map[string]func(){},
	}
	if with != nil {
		with(f)
	}
	nc, err := nats.Connect(testenv.NATS(t))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	f.js, err = jetstream.New(nc)
	require.NoError(t, err)
	_, err = f.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: f.topic, Subjects: []string{f.topic}})
	require.NoError(t, err)
	if f.database != "" {
		f.openDatabase()
	}
	f.rdb, err = f.config("test").Redis.Open("test")
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
	text := fmt.Sprintf(`
prefix: %s
instance: %s
redis: {url: %q}
queues: {orders: {sink: events%s}}
sinks: {events: {type: nats, url: %q}}
admin: {listen: "127.0.0.1:0", auth: {%s}}
drain_timeout: 5s
`, f.prefix, instance, f.redis, f.keys, f.broker, f.auth)
	if f.database != "" {
		text += fmt.Sprintf("outbox: {driver: postgres, dsn: %q}\n", f.database)
	}
	if f.isDeclared {
		text += "queue_files: {api: {}}\n"
	}
	if f.teams != "" {
		text += fmt.Sprintf("queue_files: {teams: {files: [%q]}}\n", filepath.Join(f.teams, "*.yaml"))
	}
	cfg, err := config.Parse([]byte(text), nil)
	require.NoError(f.t, err)
	return cfg
}

// start runs a bridge under that name until it is stopped.
func (f *fleet) start(name string) {
	f.t.Helper()
	listener, err := new(net.ListenConfig).Listen(f.t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(f.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.t.Context()))
	ended := make(chan error, 1)
	cfg := f.config(name)
	logger := slog.New(slog.NewTextHandler(f.t.Output(), nil)).With("of", name)
	again := func(inForce *config.Config) (*config.Config, error) { return inForce, nil }
	go func() {
		ended <- app.Run(ctx, cfg, logger, app.AdminListener(listener), app.Reload(make(chan os.Signal), again))
	}()
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

// hidden is scraped no more.
func (f *fleet) hidden(name string) { delete(f.addresses, name) }

// through leads the bridges that start from now on to one of the servers by a link that
// can be cut.
func (f *fleet) through(server *string) {
	f.t.Helper()
	target, err := url.Parse(*server)
	require.NoError(f.t, err)
	f.link = testenv.NewProxy(f.t, target.Host)
	target.Host = f.link.Addr()
	*server = target.String()
}

// cut has nobody reach the server behind the link, until mend or the test's end.
func (f *fleet) cut() {
	f.t.Cleanup(f.mend) // So that the bridges end well.
	f.link.Refuse(true)
	f.link.Cut()
}

func (f *fleet) mend() { f.link.Refuse(false) }

// await waits until something is so.
func (f *fleet) await(what string, is func() bool) {
	f.t.Helper()
	for deadline := time.Now().Add(patience); !is(); wait.Sleep(f.t.Context(), 50*time.Millisecond) {
		require.True(f.t, time.Now().Before(deadline), "within %s: %s", patience, what)
	}
}

// shows waits until a bridge tells such a value of a metric.
func (f *fleet) shows(metric string, is func(value float64) bool) {
	f.t.Helper()
	f.await(metric, func() bool {
		for _, address := range f.addresses {
			for _, found := range f.fetch(address) {
				if found.Get(model.MetricNameLabel) == metric && is(valueOf(f.t, found)) {
					return true
				}
			}
		}
		return false
	})
}

func exactly(want float64) func(float64) bool {
	return func(value float64) bool { return value == want }
}

func atLeast(want float64) func(float64) bool {
	return func(value float64) bool { return value >= want }
}

func atMost(want float64) func(float64) bool {
	return func(value float64) bool { return value <= want }
}

// ready waits until a bridge says that it reaches all that it needs.
func (f *fleet) ready(name string) {
	f.t.Helper()
	f.await(name+" is ready", func() bool {
		text := f.page(name, "/readyz")
		return text != "" && !strings.Contains("\n"+text, "\ndown ")
	})
}

// page is what a bridge serves; empty where it does not yet.
func (f *fleet) page(name, path string) string {
	f.t.Helper()
	request, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, "http://"+f.addresses[name]+path, nil)
	require.NoError(f.t, err)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return ""
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	require.NoError(f.t, err)
	return string(text)
}

// held waits until all shards in use are held by the live instances.
func (f *fleet) held(live ...string) {
	f.t.Helper()
	f.await(fmt.Sprintf("shards are held by %v", live), func() bool {
		layout, err := f.queue.LoadLayout(f.t.Context())
		if err != nil {
			return false
		}
		for shard := range layout.InUse() {
			stats, err := inspect.NewAdmin(f.queue).Stats(f.t.Context(), shard)
			if err != nil || message.InstanceName(stats.Holder) != sharding.Owner("orders", shard, live) {
				return false
			}
		}
		return true
	})
}

// one schedules a message.
func (f *fleet) one(when delay.When) (id string) {
	f.t.Helper()
	f.sent++
	id = fmt.Sprint("m", f.sent)
	_, err := f.client.Schedule(f.t.Context(), delay.Message{ID: id, Topic: f.topic}, when)
	require.NoError(f.t, err)
	return id
}

// ago is a due time that has passed.
func ago(d time.Duration) delay.When { return delay.At(time.Now().Add(-d)) }

// traffic has messages published, cancelled and dead-lettered, and waits for that.
func (f *fleet) traffic(published, cancelled, dead int) {
	f.t.Helper()
	before := f.done()
	for range published {
		f.one(delay.After(0))
	}
	for range cancelled {
		id := f.one(delay.After(time.Hour))
		require.NoError(f.t, f.client.Cancel(f.t.Context(), delay.Ref{ID: id}))
	}
	for range dead {
		f.spoil(f.one(delay.After(time.Hour)))
	}
	f.await("all are done", func() bool { return f.done() == before+published+dead })
}

// spoil makes a waiting message one that cannot be read, and due.
func (f *fleet) spoil(id string) {
	f.t.Helper()
	layout, err := f.queue.LoadLayout(f.t.Context())
	require.NoError(f.t, err)
	shard := fmt.Sprintf("%s:{orders:%d}:", f.prefix, layout.Home(id, ""))
	require.NoError(f.t, f.rdb.HSet(f.t.Context(), shard+"msg", id, "spoilt").Err())
	require.NoError(f.t, f.rdb.ZAdd(f.t.Context(), shard+"due", redis.Z{Score: 1, Member: id}).Err())
	require.NoError(f.t, f.rdb.Publish(f.t.Context(), shard+"wake", "").Err()) // Else within two seconds.
}

// done is how many messages were published or died, over all shards.
func (f *fleet) done() int {
	f.t.Helper()
	counters, err := inspect.NewAdmin(f.queue).Counters(f.t.Context(), []string{"published", "dead_lettered"})
	require.NoError(f.t, err)
	sum := counters.Retired["published"] + counters.Retired["dead_lettered"]
	for _, shard := range counters.Shards {
		sum += shard["published"] + shard["dead_lettered"]
	}
	return int(sum)
}

// pause pauses a topic, or the queue where it is empty, and waits until the bridges know.
func (f *fleet) pause(topic string) {
	f.t.Helper()
	_, err := inspect.NewAdmin(f.queue).Pause(f.t.Context(), topic, "test")
	require.NoError(f.t, err)
	f.shows("delaybridge_paused", exactly(1))
}

// stored is how many messages the broker has.
func (f *fleet) stored() int {
	f.t.Helper()
	stream, err := f.js.Stream(f.t.Context(), f.topic)
	require.NoError(f.t, err)
	info, err := stream.Info(f.t.Context())
	require.NoError(f.t, err)
	return int(info.State.Msgs)
}

// fill schedules messages for later until no more are taken.
func (f *fleet) fill() {
	f.t.Helper()
	f.await("the queue is full", func() bool {
		var err error
		for range 20 {
			_, err = f.client.Schedule(f.t.Context(), delay.Message{Topic: f.topic, Body: make([]byte, 500)}, delay.After(time.Hour))
		}
		return errors.Is(err, delay.ErrFull)
	})
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
func (f *fleet) settle() { wait.Sleep(f.t.Context(), 1100*time.Millisecond) }
