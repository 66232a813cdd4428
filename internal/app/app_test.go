package app

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/fx"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/secret"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/job"
	"github.com/delaybridge/delaybridge/internal/engine/store/rights"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/health"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestGraph checks the wiring for every example configuration.
func TestGraph(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../configs/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		cfg, err := config.Load(file, nil)
		require.NoError(t, err, file)
		require.NoError(t, fx.ValidateApp(Options(cfg, slog.New(slog.DiscardHandler))), file)
	}
}

const redisOnly = "redis: %s\nqueues: {orders: {sink: events}}\nsinks: {events: {type: nats, url: \"nats://127.0.0.1:1\"}}\nadmin: {listen: \"\"}\n"

func parse(t *testing.T, format string, args ...any) *config.Config {
	t.Helper()
	cfg, err := config.Parse([]byte(fmt.Sprintf(format, args...)), nil)
	require.NoError(t, err)
	return cfg
}

// TestRun sends a message the whole way: SDK, Redis, poller, NATS, and drains.
func TestRun(t *testing.T) {
	t.Parallel()
	redisURL, natsURL, topic := testenv.Redis(t), testenv.NATS(t), testenv.Name(t, "topic")
	cfg := parse(t, "prefix: %s\nredis: {url: %q}\nqueues: {orders: {shards: 2, sink: events}}\nsinks: {events: {type: nats, url: %q}}\nadmin: {listen: \"\"}\n",
		testenv.Name(t, "p"), redisURL, natsURL)
	got := subscribed(t, topic)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, cfg, slog.New(slog.NewTextHandler(t.Output(), nil))) }()
	rdb, err := cfg.Redis.Open("test")
	require.NoError(t, err)
	defer func() { assert.NoError(t, rdb.Close()) }()
	client, err := delay.NewClient(rdb, "orders", delay.WithPrefix(cfg.Prefix))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err = client.Schedule(t.Context(), delay.Message{ID: "a", Topic: topic, Body: []byte("hello")}, delay.After(50*time.Millisecond))
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	m, err := got.NextMsgWithContext(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "hello", string(m.Data))
	assert.Equal(t, "a", m.Header.Get("delay-id"))
	assert.Equal(t, "1", m.Header.Get("delay-attempt"))
	cancel()
	require.NoError(t, <-ended)
}

// TestLameDuck: after SIGTERM /readyz says no, and calls of the API are answered and messages
// published as before, until those who ask /readyz have had their time.
func TestLameDuck(t *testing.T) {
	t.Parallel()
	natsURL, topic := testenv.NATS(t), testenv.Name(t, "topic")
	cfg := parse(t, "prefix: %s\nredis: {url: %q}\nqueues: {orders: {shards: 2, sink: events}}\nsinks: {events: {type: nats, url: %q}}\nadmin: {lame_duck: 10s}\n",
		testenv.Name(t, "p"), testenv.Redis(t), natsURL)
	got := subscribed(t, topic)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	call := func(method, path, body string) int {
		request, err := http.NewRequestWithContext(t.Context(), method, "http://"+listener.Addr().String()+path, strings.NewReader(body))
		require.NoError(t, err)
		request.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return 0 // Nobody listens.
		}
		require.NoError(t, response.Body.Close())
		return response.StatusCode
	}
	becomes := func(path string, want int) {
		require.Eventually(t, func() bool { return call(http.MethodGet, path, "") == want }, time.Minute, 10*time.Millisecond, path)
	}

	ctx, terminate := context.WithCancel(t.Context())
	defer terminate()
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, cfg, slog.New(slog.NewTextHandler(t.Output(), nil)), AdminListener(listener))
	}()
	becomes("/readyz", http.StatusOK)
	becomes("/api/v1/queues/orders", http.StatusOK)
	terminate()
	becomes("/readyz", http.StatusServiceUnavailable)
	require.Equal(t, http.StatusCreated, call(http.MethodPost, "/api/v1/queues/orders/messages", fmt.Sprintf(`{"id": "a", "topic": %q, "body": "x", "in": "0s"}`, topic)))
	m, err := got.NextMsg(time.Minute)
	require.NoError(t, err, "it is published as before")
	assert.Equal(t, "a", m.Header.Get("delay-id"))
	require.NoError(t, <-ended)
}

func TestRunRefusesEviction(t *testing.T) {
	t.Parallel()
	server := testenv.StartRedis(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	cfg := parse(t, "redis: {url: %q}\nqueues: {orders: {sink: events}}\nsinks: {events: {type: nats, url: \"nats://127.0.0.1:1\"}}\nadmin: {listen: \"\"}\n", server.URL())
	err := Run(t.Context(), cfg, slog.New(slog.DiscardHandler))
	require.ErrorIs(t, err, health.ErrRefused)
	assert.ErrorContains(t, err, "allkeys-lru")
}

func TestRunNamesTheOccupiedPort(t *testing.T) {
	t.Parallel()
	address := strings.TrimPrefix(testenv.NATS(t), "nats://")
	cfg := parse(t, "queues: {orders: {sink: events}}\nsinks: {events: {type: nats, url: \"nats://127.0.0.1:1\"}}\nadmin: {listen: %q}\n", address)
	err := Run(t.Context(), cfg, slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, address)
	require.ErrorContains(t, err, "admin.listen")
}

// allow makes a user with the rights of a role.
// TestRunRefusesOldRedis: no such server is at hand, so one lies about its version.
func TestRunRefusesOldRedis(t *testing.T) {
	t.Parallel()
	fake := miniredis.RunT(t)
	fake.Server().SetPreHook(func(peer *server.Peer, command string, _ ...string) bool {
		if command == "INFO" {
			peer.WriteBulk("redis_version:6.0.16\r\nmaxmemory_policy:noeviction\r\n")
		}
		return command == "INFO"
	})
	err := Run(t.Context(), parse(t, redisOnly, `{url: "redis://`+fake.Addr()+`"}`), slog.New(slog.DiscardHandler))
	require.ErrorIs(t, err, health.ErrRefused)
	assert.ErrorContains(t, err, "6.0.16")
}

func allow(t *testing.T, root redis.UniversalClient, role rights.Role, setup rights.Setup) {
	t.Helper()
	words := []any{}
	for word := range strings.FieldsSeq(rights.For(role, setup).SetUser(string(role), "PASSWORD")) {
		words = append(words, word)
	}
	require.NoError(t, root.Do(t.Context(), words...).Err())
}

// TestACL runs a bridge and a producer with the rights of one queue.
func TestACL(t *testing.T) {
	t.Parallel()
	server := testenv.StartRedis(t)
	cfg := parse(t, "redis: {url: %q}\nqueues: {orders: {shards: 2, sink: events, history: {count: 2}}}\nsinks: {events: {type: nats, url: %q}}\nadmin: {listen: \"\"}\n",
		server.URL(), testenv.NATS(t))
	root, err := cfg.Redis.Open("root")
	require.NoError(t, err)
	setup := rights.Setup{Prefix: cfg.Prefix, Queues: []string{"orders"}}
	for _, role := range []rights.Role{rights.Bridge, rights.Producer} {
		allow(t, root, role, setup)
	}
	require.NoError(t, root.ConfigSet(t.Context(), "acllog-max-len", "1000").Err())
	cfg.Redis.Username, cfg.Redis.Password = "bridge", secret.Value("PASSWORD")
	asProducer := cfg.Redis
	asProducer.Username = "producer"

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, cfg, slog.New(slog.NewTextHandler(t.Output(), nil))) }()
	rdb, err := asProducer.Open("producer")
	require.NoError(t, err)
	topic := testenv.Name(t, "missing")
	for _, policy := range []delay.Conflict{delay.Keep, delay.Replace} {
		client, err := delay.NewClient(rdb, "orders", delay.WithConflict(policy))
		require.NoError(t, err)
		m := delay.Message{ID: "a", Topic: topic}
		require.Eventually(t, func() bool {
			_, err = client.Schedule(t.Context(), m, delay.After(time.Hour))
			return err == nil
		}, time.Minute, 10*time.Millisecond)
		require.NoError(t, client.Reschedule(t.Context(), delay.Ref{ID: "a"}, delay.After(2*time.Hour)))
		_, err = client.Get(t.Context(), delay.Ref{ID: "a"})
		require.NoError(t, err)
		require.NoError(t, client.Cancel(t.Context(), delay.Ref{ID: "a"}))
		m.ID = fmt.Sprint("due-", policy)
		_, err = client.Schedule(t.Context(), m, delay.After(0))
		require.NoError(t, err)
	}
	asBridge, err := cfg.Redis.Open("api")
	require.NoError(t, err)
	admin := inspect.NewAdmin(store.New(asBridge, cfg.Prefix, "orders"))
	require.NoError(t, admin.Audit(t.Context(), &inspect.Change{Who: "ann"}))
	_, err = admin.AuditLog(t.Context(), "", 1)
	require.NoError(t, err)
	_, _, err = admin.Instances(t.Context())
	require.NoError(t, err)
	_, err = admin.Forecast(t.Context(), time.Time{}, time.Now().Add(time.Hour), time.Hour)
	require.NoError(t, err)
	_, err = admin.List(t.Context(), inspect.ListRequest{Filter: inspect.Filter{Tag: "red"}, Limit: 1})
	require.NoError(t, err)
	jobs := job.New(store.New(asBridge, cfg.Prefix, "orders"))
	id, err := jobs.Start(t.Context(), job.Spec{Verb: job.Cancel, Filter: inspect.Filter{Tag: "red"}})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		found, err := jobs.Get(t.Context(), id)
		return err == nil && found.State == job.Done
	}, time.Minute, 10*time.Millisecond)
	_, _, err = jobs.List(t.Context(), "")
	require.NoError(t, err)
	require.NoError(t, asBridge.Close())

	queue := store.New(root, cfg.Prefix, "orders")
	_, err = queue.AwaitLayout(t.Context())
	require.NoError(t, err)
	require.Eventually(t, func() bool { // Their topic is missing.
		parked := int64(0)
		for shard := range 2 {
			stats, err := inspect.NewAdmin(queue).Stats(t.Context(), shard)
			parked += stats.Parked
			if err != nil {
				return false
			}
		}
		return parked == 2
	}, time.Minute, 10*time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
	denied, err := root.ACLLog(t.Context(), 100).Result()
	require.NoError(t, err)
	for _, entry := range denied {
		t.Errorf("%s was denied %s", entry.Username, entry.Object)
	}
	require.NoError(t, root.Close())
	require.NoError(t, rdb.Close())
}
