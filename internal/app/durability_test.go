package app

import (
	"context"
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
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// durableBridge is a bridge with the queue "orders", and what it has published.
type durableBridge struct {
	t      *testing.T
	rdb    redis.UniversalClient
	client *delay.Client
	queue  *store.Queue
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
	b.queue = store.New(b.rdb, prefix, "orders")
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

// schedule schedules messages that are due then, so that so many replicas have them.
func (b *durableBridge) schedule(count, replicas int, due time.Time) {
	b.t.Helper()
	requests := make([]delay.Request, count)
	for i := range requests {
		requests[i] = delay.Request{Message: delay.Message{ID: fmt.Sprint("m", i), Topic: b.topic}, When: delay.At(due)}
	}
	require.Eventually(b.t, func() bool {
		results, err := b.client.ScheduleBatch(b.t.Context(), requests)
		for _, result := range results {
			if result.Err != nil && !errors.Is(result.Err, delay.ErrDuplicate) {
				return false
			}
		}
		return err == nil
	}, time.Minute, 20*time.Millisecond)
	require.Eventually(b.t, func() bool {
		// On a connection that has written: only that is waited for from Redis 8 on.
		pipe := b.rdb.Pipeline()
		pipe.Set(b.t.Context(), b.topic, 1, time.Minute)
		confirmed := pipe.Do(b.t.Context(), "wait", replicas, 1000)
		_, err := pipe.Exec(b.t.Context())
		n, _ := confirmed.Int()
		return err == nil && n >= replicas
	}, time.Minute, 20*time.Millisecond)
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
	b.schedule(20, 0, time.Now())
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

// TestFailoverWithoutTheClaim kills a primary whose replicas have the messages, but
// neither the claims nor what became of them. Where the queue is durable nothing was
// published by then. Else what was is published again, and nobody can tell.
func TestFailoverWithoutTheClaim(t *testing.T) {
	t.Parallel()
	for keys, isDurable := range map[string]bool{"": false, ", durability: replicas": true} {
		t.Run(fmt.Sprint("durable ", isDurable), func(t *testing.T) {
			t.Parallel()
			const count = 50
			s := testenv.StartSentinel(t)
			b := newDurableBridge(t, fmt.Sprintf("{mode: sentinel, master: %s, sentinels: [%s]}", s.Master(), strings.Join(s.Addrs(), ", ")), keys)
			primary := s.Primary()
			due := time.Now().Add(5 * time.Second)
			b.schedule(count, len(s.Nodes())-1, due)
			cutOff(t, primary)
			if isDurable {
				b.eventually("it is said", func() bool { return len(b.logs.of("does not confirm")) > 0 })
				b.eventually("some were claimed and given back", func() bool {
					return !strings.Contains(b.page("/metrics"), `delaybridge_released_total{queue="orders"} 0`)
				})
				assert.Empty(t, b.published())
			} else {
				b.eventually("they are published", func() bool { return len(b.published()) == count })
				b.eventually("and settled", func() bool {
					return strings.Contains(b.page("/metrics"), fmt.Sprintf("delaybridge_published_total{queue=\"orders\"} %d", count))
				})
			}
			s.KillPrimary()
			s.AwaitFailover()
			if !isDurable {
				b.eventually("they are published again", func() bool {
					for _, attempts := range b.published() {
						if len(attempts) < 2 {
							return false
						}
					}
					return true
				})
				for id, attempts := range b.published() {
					assert.Equal(t, []string{"1", "1"}, attempts, "%s: nobody can tell", id)
				}
				return
			}
			b.eventually("they are published", func() bool { return len(b.published()) == count })
			b.eventually("and settled", func() bool {
				left, err := b.left(t.Context())
				return err == nil && left == 0
			})
			for id, attempts := range b.published() {
				assert.Len(t, attempts, 1, id)
			}
		})
	}
}

// cutOff has a primary lose its replicas, which do not come back. One that is paused
// instead would read, later, what was on its way.
func cutOff(t *testing.T, primary *testenv.Server) {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: primary.Addr()})
	defer func() { assert.NoError(t, rdb.Close()) }()
	require.NoError(t, rdb.Do(t.Context(), "acl", "setuser", "default", "-psync", "-sync").Err())
	require.NoError(t, rdb.Do(t.Context(), "client", "kill", "type", "replica").Err())
}

// left is how many messages wait or are in flight.
func (b *durableBridge) left(ctx context.Context) (left int64, err error) {
	if _, err := b.queue.LoadLayout(ctx); err != nil {
		return 0, err
	}
	for shard := range 2 {
		stats, err := inspect.NewAdmin(b.queue).Stats(ctx, shard)
		if err != nil {
			return 0, err
		}
		left += stats.Waiting + stats.InFlight
	}
	return left, nil
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
