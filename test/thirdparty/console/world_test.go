package console

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/app"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// patience is for a busy machine; nothing waits so long where all is well.
const patience = 2 * time.Minute

// world is a bridge with one queue, "orders", and what a test looks at beside the page.
type world struct {
	t       *testing.T
	topic   string // and what begins so
	address string
	client  *delay.Client
	rdb     redis.UniversalClient
	queue   *store.Queue
	arrived chan string // ids
}

// setting is what a world is made of; what is empty is as usual.
type setting struct {
	admin, queue string // more of these sections of the configuration
	queueFiles   string // the section of that name
	redis, nats  string // URLs
	options      []delay.Option
	hasInlet     bool // "asked", see world.ask
}

// newWorld starts a bridge; more is added to its configuration's section admin.
func newWorld(t *testing.T, more string) *world {
	t.Helper()
	return setting{admin: more}.start(t)
}

func (s setting) start(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, topic: testenv.Name(t, "topic"), arrived: make(chan string, 1000)}
	w.consume()
	if s.redis == "" {
		s.redis = testenv.Redis(t)
	}
	if s.nats == "" {
		s.nats = testenv.NATS(t)
	}
	inlets := "{}"
	if s.hasInlet {
		inlets = fmt.Sprintf(`{asked: {sink: events, from: {stream: %[1]s, subject: %[1]s.asked}, queue: orders, topic: %[1]s.timeout, replies: %[1]s.answered}}`, w.topic)
	}
	prefix := testenv.Name(t, "p")
	cfg, err := config.Parse(fmt.Appendf(nil, `
prefix: %s
instance: night-shift
redis: {url: %q}
queues: {orders: {shards: 2, sink: events%s}}
sinks: {events: {type: nats, url: %q}}
inlets: %s
admin: {listen: "127.0.0.1:0"%s}
queue_files: {%s}
drain_timeout: 5s
`, prefix, s.redis, s.queue, s.nats, inlets, s.admin, s.queueFiles), nil)
	require.NoError(t, err)
	rdb, err := cfg.Redis.Open("test")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	w.client, err = delay.NewClient(rdb, "orders", append(s.options, delay.WithPrefix(prefix))...)
	require.NoError(t, err)
	w.rdb, w.queue = rdb, store.New(rdb, prefix, "orders")

	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w.address = "http://" + listener.Addr().String() + "/"
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	again := func(inForce *config.Config) (*config.Config, error) { return inForce, nil }
	go func() {
		ended <- app.Run(ctx, cfg, logger, app.AdminListener(listener), app.Reload(make(chan os.Signal), again))
	}()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
	require.Eventually(t, func() bool {
		_, err := w.queue.LoadLayout(t.Context())
		return err == nil
	}, patience, 10*time.Millisecond)
	return w
}

// consume reads what arrives at the broker.
func (w *world) consume() {
	nc, err := nats.Connect(testenv.NATS(w.t))
	require.NoError(w.t, err)
	w.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(w.t, err)
	_, err = js.CreateStream(w.t.Context(), jetstream.StreamConfig{Name: w.topic, Subjects: []string{w.topic + ".>"}})
	require.NoError(w.t, err)
	_, err = nc.Subscribe(w.topic+".>", func(m *nats.Msg) { w.arrived <- m.Header.Get("delay-id") })
	require.NoError(w.t, err)
	require.NoError(w.t, nc.Flush())
}

// ask publishes a message with these headers to the inlet.
func (w *world) ask(headers ...string) {
	w.t.Helper()
	nc, err := nats.Connect(testenv.NATS(w.t))
	require.NoError(w.t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	require.NoError(w.t, err)
	m := nats.NewMsg(w.topic + ".asked")
	for i := 0; i < len(headers); i += 2 {
		m.Header[headers[i]] = []string{headers[i+1]}
	}
	_, err = js.PublishMsg(w.t.Context(), m)
	require.NoError(w.t, err)
}

// schedule stores a message that is due in so long.
func (w *world) schedule(m delay.Message, in time.Duration) delay.Ref {
	w.t.Helper()
	if m.Topic == "" {
		m.Topic = w.topic + ".timeout"
	}
	result, err := w.client.Schedule(w.t.Context(), m, delay.After(in))
	require.NoError(w.t, err)
	return result.Ref
}

// gone waits until the message is in Redis no more.
func (w *world) gone(ref delay.Ref) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		_, err := w.client.Get(w.t.Context(), ref)
		return err != nil
	}, patience, 20*time.Millisecond)
	_, err := w.client.Get(w.t.Context(), ref)
	require.ErrorIs(w.t, err, delay.ErrNotFound)
}

// arrives waits for that message, and fails where another one comes before.
func (w *world) arrives(id string) {
	w.t.Helper()
	select {
	case got := <-w.arrived:
		require.Equal(w.t, id, got)
	case <-time.After(patience):
		require.Fail(w.t, "nothing has arrived", id)
	}
}
