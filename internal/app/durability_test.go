package app

import (
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// durableBridge is a bridge with the queue "orders", and what it has published.
type durableBridge struct {
	t      *testing.T
	rdb    redis.UniversalClient
	client *delay.Client
	topic  string
	logs   *records
	admin  string
	stop   func()

	mu     sync.Mutex
	copies map[string][]string // by id, the attempts
}

// newDurableBridge runs a bridge on that Redis, a section of a configuration; keys
// are further ones of the queue.
func newDurableBridge(t *testing.T, section, keys string) *durableBridge {
	t.Helper()
	b := &durableBridge{t: t, topic: testenv.Name(t, "topic"), copies: map[string][]string{}}
	nc, err := nats.Connect(testenv.NATS(t))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	// A window so short that the broker keeps copies that have the same attempt.
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: b.topic, Subjects: []string{b.topic}, Duplicates: 100 * time.Millisecond})
	require.NoError(t, err)
	_, err = nc.Subscribe(b.topic, b.arrive)
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	b.admin = listener.Addr().String()
	prefix := testenv.Name(t, "p")
	cfg := parse(t, "prefix: %s\nredis: %s\nqueues: {orders: {shards: 2, sink: events%s}}\nsinks: {events: {type: nats, url: %q}}\nadmin: {listen: %q}\ndrain_timeout: 5s\n",
		prefix, section, keys, testenv.NATS(t), b.admin)
	b.rdb, err = cfg.Redis.Open("test")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, b.rdb.Close()) })
	b.client, err = delay.NewClient(b.rdb, "orders", delay.WithPrefix(prefix))
	require.NoError(t, err)
	b.logs = &records{Handler: slog.NewTextHandler(t.Output(), nil), list: &recordList{}}
	b.stop = runBridge(t, cfg, b.logs.logger(), AdminListener(listener))
	return b
}

func (b *durableBridge) arrive(m *nats.Msg) {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := m.Header.Get("delay-id")
	b.copies[id] = append(b.copies[id], m.Header.Get("delay-attempt"))
}

// published are the attempts of all copies, by id.
func (b *durableBridge) published() map[string][]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[string][]string{}
	for id, attempts := range b.copies {
		all[id] = append([]string(nil), attempts...)
	}
	return all
}

// schedule schedules messages that are due.
func (b *durableBridge) schedule(count int) {
	b.t.Helper()
	requests := make([]delay.Request, count)
	for i := range requests {
		requests[i] = delay.Request{Message: delay.Message{ID: fmt.Sprint("m", i), Topic: b.topic}, When: delay.After(0)}
	}
	b.eventually("they are scheduled", func() bool {
		results, err := b.client.ScheduleBatch(b.t.Context(), requests)
		for _, result := range results {
			if result.Err != nil && !errors.Is(result.Err, delay.ErrDuplicate) {
				return false
			}
		}
		return err == nil
	})
}

// page is what the bridge serves.
func (b *durableBridge) page(path string) string {
	request, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, "http://"+b.admin+path, nil)
	require.NoError(b.t, err)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return ""
	}
	defer func() { _ = response.Body.Close() }()
	text, _ := io.ReadAll(response.Body)
	return string(text)
}

func (b *durableBridge) eventually(what string, is func() bool) {
	b.t.Helper()
	require.Eventually(b.t, is, 2*time.Minute, 20*time.Millisecond, what)
}

// TestUnconfirmedIsSaid: a Redis without replicas is said once in the log, in
// /readyz and in the metrics, and nothing is published until it has one. A stop does
// not take long, whatever Redis confirms.
func TestUnconfirmedIsSaid(t *testing.T) {
	t.Parallel()
	primary := testenv.StartRedis(t, "--repl-diskless-sync-delay", "0")
	b := newDurableBridge(t, fmt.Sprintf("{url: %q}", primary.URL()), ", durability: replicas")
	b.schedule(20)
	const said = "redis does not confirm what it writes"
	b.eventually("it is said", func() bool { return len(b.logs.of(said)) > 0 })
	b.eventually("in /readyz", func() bool {
		return strings.Contains(b.page("/readyz"), "down durability orders: not confirmed: 0 of 1 replicas did")
	})
	b.eventually("in the metrics", func() bool { return strings.Contains(b.page("/metrics"), `delaybridge_durable{queue="orders"} 0`) })
	b.eventually("some were claimed and given back", func() bool {
		return !strings.Contains(b.page("/metrics"), `delaybridge_released_total{queue="orders"} 0`)
	})
	assert.Empty(t, b.published())

	host, port, err := net.SplitHostPort(primary.Addr())
	require.NoError(t, err)
	replica := testenv.StartRedis(t, "--replicaof", host+" "+port)
	b.eventually("all are published", func() bool { return len(b.published()) == 20 })
	b.eventually("and it is said", func() bool { return strings.Contains(b.page("/readyz"), "ok durability orders") })
	for id, attempts := range b.published() {
		assert.Equal(t, []string{"1"}, attempts, id)
	}
	assert.Len(t, b.logs.of(said), 1)
	assert.Len(t, b.logs.of("confirms what it writes again"), 1)
	replica.Pause()
	b.stop()
}

// TestRowsWaitToBeConfirmed: Redis has a row's message, and what an operation did, but
// rows say neither before a replica has them, too.
func TestRowsWaitToBeConfirmed(t *testing.T) {
	t.Parallel()
	primary := testenv.StartRedis(t, "--repl-diskless-sync-delay", "0")
	d := newDatabaseFirst(t, schema.Postgres, testenv.Postgres(t), "poll: 50ms")
	d.config.Redis.URL = primary.URL()
	queue := d.config.Queues["orders"]
	queue.Durability, queue.Replicas = config.Replicas, 1
	d.config.Queues["orders"] = queue
	d.migrate()
	d.start()
	var stays, cancelled delay.Ref
	d.commit(func(tx *sql.Tx) {
		stays, cancelled = d.schedule(tx, "stays", delay.After(time.Hour/2)), d.schedule(tx, "cancelled", delay.After(time.Hour/2))
	})
	const waits = "outbox waits: queue is away"
	d.eventually("the relay waits", func() bool { return len(d.logs.of(waits)) > 0 })
	d.commit(func(tx *sql.Tx) { require.NoError(t, d.box.Cancel(t.Context(), tx, "orders", cancelled)) })
	d.eventually("for the operation, too", func() bool { return len(d.logs.of("outbox waits: operations is away")) > 0 })
	assert.Equal(t, "schedule pending", d.row(stays))
	assert.Contains(t, d.logs.of(waits)[0], "0 of 1 replicas did")

	host, port, err := net.SplitHostPort(primary.Addr())
	require.NoError(t, err)
	testenv.StartRedis(t, "--replicaof", host+" "+port)
	d.becomes(stays, "schedule stored")
	d.becomes(cancelled, "cancel cancelled")
}
