package app

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sharding"
)

// fleet are instances that share the shards of the queue "orders".
type fleet struct {
	t      *testing.T
	redis  string
	rdb    redis.UniversalClient
	prefix string
	topic  string
	shards int
	more   string // of the queue's configuration
	// meanwhile is what happens when so many messages have come, see keepsRate.
	meanwhile map[int]func()
	logs      map[string]*records
	queue     *store.Queue
	client    *delay.Client
	got       *nats.Subscription
	sent      int
	seen      map[string]bool // ids
	copies    map[string]bool // ids and attempts
	cancel    map[string]context.CancelFunc
	ended     map[string]chan error
}

func newFleet(t *testing.T, redisURL string, shards int) *fleet {
	f := &fleet{
		t: t, redis: redisURL, shards: shards, prefix: testenv.Name(t, "p"), topic: testenv.Name(t, "topic"),
		logs: map[string]*records{},
		seen: map[string]bool{}, copies: map[string]bool{},
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
	f.rdb, err = parse(t, redisOnly, fmt.Sprintf("{url: %q}", redisURL)).Redis.Open("test")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, f.rdb.Close()) })
	f.queue = store.New(f.rdb, f.prefix, "orders")
	f.client, err = delay.NewClient(f.rdb, "orders", delay.WithPrefix(f.prefix))
	require.NoError(t, err)
	return f
}

// config is that of an instance.
func (f *fleet) config(name, redisURL string) *config.Config {
	return parse(f.t, "prefix: %s\ninstance: %s\nredis: {url: %q}\nqueues: {orders: {shards: %d, sink: events%s}}\nsinks: {events: {type: nats, url: %q}}\nadmin: {listen: \"\"}\ndrain_timeout: 5s\n",
		f.prefix, name, redisURL, f.shards, f.more, testenv.NATS(f.t))
}

func (f *fleet) join(name, redisURL string) {
	cfg := f.config(name, redisURL)
	ctx, cancel := context.WithCancel(f.t.Context())
	ended := make(chan error, 1)
	f.cancel[name], f.ended[name] = cancel, ended
	logs := &records{Handler: slog.NewTextHandler(f.t.Output(), nil).WithAttrs([]slog.Attr{slog.String("of", name)}), list: &recordList{}}
	f.logs[name] = logs
	go func() { ended <- Run(ctx, cfg, slog.New(logs)) }()
	f.t.Cleanup(func() { f.leave(name) })
}

func (f *fleet) leave(name string) {
	if ended := f.ended[name]; ended != nil {
		delete(f.ended, name)
		f.cancel[name]()
		assert.NoError(f.t, <-ended)
	}
}

// forsake lets another instance have the name; the returned function ends this
// one, whose drain may fail.
func (f *fleet) forsake(name string) (end func()) {
	cancel, ended := f.cancel[name], f.ended[name]
	delete(f.ended, name)
	return func() {
		cancel()
		f.t.Log("ended, its drain may fail since it was cut off:", <-ended)
	}
}

// proxied is the Redis behind a proxy.
func proxied(t *testing.T, redisURL string) (string, *testenv.Proxy) {
	t.Helper()
	address, err := url.Parse(redisURL)
	require.NoError(t, err)
	proxy := testenv.NewProxy(t, address.Host)
	return "redis://" + proxy.Addr() + address.Path, proxy
}

// held waits until each shard is held by its owner among those that live.
func (f *fleet) held(live ...string) {
	f.t.Helper()
	require.Eventually(f.t, func() bool {
		if _, err := f.queue.Layout(f.t.Context()); err != nil {
			return false
		}
		for shard := range f.shards {
			stats, err := inspect.NewAdmin(f.queue).Stats(f.t.Context(), shard)
			if err != nil || message.InstanceName(stats.Holder) != sharding.Owner("orders", shard, live) {
				return false
			}
		}
		return true
	}, time.Minute, 10*time.Millisecond, "of %v", live)
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

// TestDeadInstanceIsNamed lets one fall silent that holds many shards: the logs
// of the others say which, and what they take over from it, in few lines. When it
// answers again it gets its shards back.
func TestDeadInstanceIsNamed(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testenv.Redis(t), 64)
	address, proxy := proxied(t, f.redis)
	f.join("a", f.redis)
	f.join("dies", address)
	f.held("a", "dies")
	named := regexp.MustCompile(`joined=(a,)?dies `) // It may see both at its first look.
	require.Eventually(t, func() bool {
		return slices.ContainsFunc(f.logs["a"].of("instances changed"), named.MatchString)
	}, time.Minute, 10*time.Millisecond)
	for range 5 { // Some are claimed when it happens.
		f.send()
	}
	proxy.Blackhole(true)
	f.held("a")
	moved := 64 - len(sharding.Owned("orders", 64, "a", []string{"a", "dies"}))
	taken := regexp.MustCompile(`^shards taken over .*shards=(\d+) .*from=dies `)
	require.Eventually(t, func() bool {
		sum := 0
		for _, text := range f.logs["a"].of("shards taken over") {
			if match := taken.FindStringSubmatch(text); match != nil {
				n, _ := strconv.Atoi(match[1])
				sum += n
			}
		}
		return sum == moved
	}, time.Minute, 10*time.Millisecond)
	assert.Less(t, len(f.logs["a"].of("shards taken over")), moved/2)
	assert.Len(t, f.logs["a"].of("gone=dies"), 1)
	assert.Less(t, len(f.logs["a"].of("")), 30, "no line for each shard")
	proxy.Blackhole(false)
	f.held("a", "dies")
	f.send()
	f.leave("a")
	f.held("dies")
	f.all()
}

// all waits until every message has come, and what came twice says so.
func (f *fleet) all() {
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
	defer cancel()
	for len(f.seen) < f.sent {
		m, err := f.got.NextMsgWithContext(ctx)
		require.NoError(f.t, err, "%d of %d have come", len(f.seen), f.sent)
		id := m.Header.Get("delay-id")
		attempt := id + " " + m.Header.Get("delay-attempt")
		assert.False(f.t, f.copies[attempt], "%s came twice", attempt)
		f.seen[id], f.copies[attempt] = true, true
	}
}
