package app

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/sharding"
	"github.com/delaybridge/delaybridge/internal/store"
	"github.com/delaybridge/delaybridge/internal/testenv"
)

const fleetShards = 12

// fleet are instances that share the shards of the queue "orders".
type fleet struct {
	t      *testing.T
	prefix string
	topic  string
	queue  *store.Queue
	client *delay.Client
	got    *nats.Subscription
	sent   int
	cancel map[string]context.CancelFunc
	ended  map[string]chan error
}

func newFleet(t *testing.T) *fleet {
	f := &fleet{
		t: t, prefix: testenv.Name(t, "p"), topic: testenv.Name(t, "topic"),
		cancel: map[string]context.CancelFunc{}, ended: map[string]chan error{},
	}
	nc, err := nats.Connect(testenv.NATS(t))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: f.topic, Subjects: []string{f.topic}})
	require.NoError(t, err)
	f.got, err = nc.SubscribeSync(f.topic)
	require.NoError(t, err)
	rdb, err := NewRedis(parse(t, redisOnly, fmt.Sprintf("{url: %q}", testenv.Redis(t))).Redis, "test")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	f.queue = store.New(rdb, f.prefix, "orders")
	f.client, err = delay.NewClient(rdb, "orders", delay.WithPrefix(f.prefix))
	require.NoError(t, err)
	return f
}

func (f *fleet) join(name, redisURL string) {
	cfg := parse(f.t, "prefix: %s\ninstance: %s\nredis: {url: %q}\nqueues: {orders: {shards: %d, sink: events}}\nsinks: {events: {type: nats, url: %q}}\nadmin: {listen: \"\"}\ndrain_timeout: 5s\n",
		f.prefix, name, redisURL, fleetShards, testenv.NATS(f.t))
	ctx, cancel := context.WithCancel(f.t.Context())
	f.cancel[name], f.ended[name] = cancel, make(chan error, 1)
	go func() {
		f.ended[name] <- Run(ctx, cfg, slog.New(slog.NewTextHandler(f.t.Output(), nil)).With("of", name))
	}()
	f.t.Cleanup(func() { f.leave(name) })
}

func (f *fleet) leave(name string) {
	if ended := f.ended[name]; ended != nil {
		delete(f.ended, name)
		f.cancel[name]()
		assert.NoError(f.t, <-ended)
	}
}

// held waits until each shard is held by its owner among those that live.
func (f *fleet) held(within time.Duration, live ...string) {
	f.t.Helper()
	require.Eventually(f.t, func() bool {
		if _, err := f.queue.Layout(f.t.Context()); err != nil {
			return false
		}
		for shard := range fleetShards {
			stats, err := f.queue.Stats(f.t.Context(), shard)
			if err != nil || stats.Holder != sharding.Owner("orders", shard, live) {
				return false
			}
		}
		return true
	}, within, 10*time.Millisecond, "of %v", live)
}

// send sends some messages to all shards, due soon.
func (f *fleet) send() {
	for range 60 {
		f.sent++
		m := delay.Message{ID: fmt.Sprint("m", f.sent), Topic: f.topic}
		_, err := f.client.Schedule(f.t.Context(), m, delay.After(time.Duration(f.sent%60)*10*time.Millisecond))
		require.NoError(f.t, err)
	}
}

// TestInstancesShareTheShards lets instances come, leave, and fall silent,
// while messages are due all the time.
func TestInstancesShareTheShards(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	address, err := url.Parse(testenv.Redis(t))
	require.NoError(t, err)
	proxy := testenv.NewProxy(t, address.Host)
	f.join("a", testenv.Redis(t))
	f.held(20*time.Second, "a")
	f.send()
	f.join("b", testenv.Redis(t))
	f.held(20*time.Second, "a", "b")
	f.send()
	f.join("c", "redis://"+proxy.Addr())
	f.held(20*time.Second, "a", "b", "c")
	f.send()
	proxy.Blackhole(true) // For the others c is dead: it hands nothing over.
	f.send()
	f.held(20*time.Second, "a", "b")
	proxy.Blackhole(false)
	f.held(20*time.Second, "a", "b", "c")
	f.send()
	f.leave("b")
	f.send()
	f.held(20*time.Second, "a", "c")
	f.all()
}

// all waits until every message has come, and what came twice says so.
func (f *fleet) all() {
	seen, copies := map[string]bool{}, map[string]bool{}
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
	defer cancel()
	for len(seen) < f.sent {
		m, err := f.got.NextMsgWithContext(ctx)
		require.NoError(f.t, err, "%d of %d have come", len(seen), f.sent)
		id := m.Header.Get("delay-id")
		attempt := id + " " + m.Header.Get("delay-attempt")
		assert.False(f.t, copies[attempt], "%s came twice", attempt)
		seen[id], copies[attempt] = true, true
	}
}
