package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/compensation/consumer"
	"github.com/delaybridge/delaybridge/internal/engine/compensation"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/source"
)

// counts is an observer.
type counts struct {
	mu      sync.Mutex
	results map[consumer.Result]int
	changed chan struct{}
}

func newCounts() *counts {
	return &counts{results: map[consumer.Result]int{}, changed: make(chan struct{}, 1)}
}

func (c *counts) Compensated(_ string, result consumer.Result) {
	c.mu.Lock()
	c.results[result]++
	c.mu.Unlock()
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

func (c *counts) get(result consumer.Result) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.results[result]
}

func (c *counts) await(t testing.TB, result consumer.Result, count int) {
	t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for c.get(result) < count {
		select {
		case <-c.changed:
		case <-timeout.C:
			require.Fail(t, "did not happen", "%d times %s; have %v", count, result, c.results)
		}
	}
}

// world is a queue in a real Redis of its own, and a writer at a broker.
type world struct {
	place
	name, prefix string
	redis        *testenv.Server
	direct       *redis.Client
	queue        *store.Queue
	counts       *counts
	sink         sinks.Sink
	stop         func()
}

func connectRedis(t testing.TB, addr string) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr: addr, DialTimeout: 2 * time.Second, DialerRetries: 1, ContextTimeoutEnabled: true,
		// After so many failed dials go-redis asks only once a second.
		PoolSize: 4096,
	})
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	return client
}

func newWorld(t *testing.T, b broker, sinkType message.SinkType) *world {
	t.Helper()
	server := testenv.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	w := &world{
		name: testenv.Name(t, "orders"), prefix: "delay", redis: server, counts: newCounts(),
		direct: connectRedis(t, server.Addr()),
	}
	w.place = place{broker: b, topic: compensation.Topic(w.name), group: source.Group(w.prefix, w.name)}
	w.queue = store.New(w.direct, w.prefix, w.name)
	_, err := w.queue.Layouts().Ensure(t.Context(), store.Layout{Shards: 4, Sink: sinkType, MaxMessage: message.DefaultMaxSize})
	require.NoError(t, err)
	w.sink = w.openSink(t)
	return w
}

// startWriter runs the bridge's part, and waits until the broker has what it needs.
func (w *world) startWriter(t *testing.T, rows consumer.Rows) {
	t.Helper()
	writer := consumer.NewWriter(consumer.WriterConfig{
		Store: store.New(connectRedis(t, w.redis.Addr()), w.prefix, w.name).Rows(), Rows: rows, Dead: &deadlineSink{w.sink},
		Topic: w.topic, Observer: w.counts, Logger: logger(t),
	})
	w.stop = w.start(t, writer.Handle)
	publish(t, w.sink, w.topic, "not one") // Until the topic is there.
	w.counts.await(t, consumer.Undecodable, 1)
}

// deadlineSink gives calls a deadline, as the contract of sinks wants.
type deadlineSink struct{ sinks.Sink }

func (b *deadlineSink) Publish(ctx context.Context, batch []message.Message, outcomes *sinks.Outcomes) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	b.Sink.Publish(ctx, batch, outcomes)
}

// client is a producer's, whose compensations go to the broker.
func (w *world) client(t *testing.T, addr string, timeout time.Duration) *delay.Client {
	t.Helper()
	client, err := delay.NewClient(connectRedis(t, addr), w.name, delay.WithTimeout(timeout),
		delay.WithCompensation(func(ctx context.Context, topic string, headers map[string]string, body []byte) error {
			outcome := sinks.Publish(ctx, w.sink, []message.Message{{
				ID: testenv.Name(t, "c"), Topic: topic, Headers: headers, Body: body, Queue: "any",
				DueAt: time.Now(), ScheduledAt: time.Now(), Attempt: 1, Token: testenv.Name(t, "t"),
			}})[0]
			if outcome.Class != sinks.Acknowledged {
				return fmt.Errorf("publish: %s: %w", outcome.Class, outcome.Err)
			}
			return nil
		}))
	require.NoError(t, err)
	return client
}

var sinkTypes = map[string]message.SinkType{"kafka": message.Kafka, "rabbitmq": message.RabbitMQ, "nats": message.NATS}

// prompt is ample on a busy machine for what `figures compensation` measures: a
// second.
const prompt = 5 * time.Second

// TestRedisAway: Redis is away for producer and bridge; each broker carries the
// message, and Redis has it soon after its return.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	for name, open := range brokers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, open(t), sinkTypes[name])
			w.startWriter(t, nil)
			client := w.client(t, w.redis.Addr(), 4*time.Second)
			_, err := client.Get(t.Context(), delay.Ref{ID: "none"})
			require.ErrorIs(t, err, delay.ErrNotFound)

			w.redis.Kill()
			// A run on a connection that was cut may have happened: only without one it cannot.
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err = client.Get(ctx, delay.Ref{ID: "none"})
			cancel()
			require.ErrorIs(t, err, delay.ErrUnavailable)
			began := time.Now()
			result, err := client.Schedule(t.Context(), delay.Message{
				ID: "late", Key: "k", Topic: "order.timeout", Headers: map[string]string{"a": "b"}, Body: []byte{0, 0xff},
			}, delay.After(time.Hour))
			require.NoError(t, err)
			require.Equal(t, delay.Compensated, result.Status)
			require.WithinDuration(t, began.Add(time.Hour), result.DueAt, 1500*time.Millisecond)
			w.counts.await(t, consumer.Retried, 1)
			outage := time.NewTimer(3 * time.Second) // The pauses reach their longest.
			<-outage.C
			require.Zero(t, w.counts.get(consumer.Stored))

			started := time.Now()
			w.redis.Start()
			back := time.Now()
			w.counts.await(t, consumer.Stored, 1)
			took := time.Since(back)
			t.Logf("MEASURED %s: in Redis %s after Redis takes requests, %s after its process was started",
				name, took.Round(time.Millisecond), time.Since(started).Round(time.Millisecond))
			require.Less(t, took, prompt)
			info, found, err := inspect.Get(t.Context(), w.queue, "late", "k")
			require.NoError(t, err)
			require.True(t, found)
			require.Equal(t, result.DueAt.UnixMilli(), info.DueAt.UnixMilli())
			require.Equal(t, []byte{0, 0xff}, info.Message.Body)
			require.True(t, strings.HasPrefix(info.Message.Token, "~~"), "settling leaves a trace, and tells no row")
		})
	}
}

// TestRedisFull: Redis refuses writes only, for lack of memory.
func TestRedisFull(t *testing.T) {
	t.Parallel()
	for name, open := range brokers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, open(t), sinkTypes[name])
			w.startWriter(t, nil)
			client := w.client(t, w.redis.Addr(), 10*time.Second)
			require.NoError(t, w.direct.ConfigSet(t.Context(), "maxmemory", "1").Err())
			var requests []delay.Request
			for i := range 30 {
				requests = append(requests, delay.Request{
					Message: delay.Message{ID: fmt.Sprint(i), Topic: "order.timeout"}, When: delay.At(time.Now().Add(time.Hour)),
				})
			}
			results, err := client.ScheduleBatch(t.Context(), requests)
			require.NoError(t, err)
			for _, result := range results {
				require.NoError(t, result.Err)
				require.Equal(t, delay.Compensated, result.Status)
			}
			w.counts.await(t, consumer.Retried, 1)
			require.NoError(t, w.direct.ConfigSet(t.Context(), "maxmemory", "0").Err())
			back := time.Now()
			w.counts.await(t, consumer.Stored, 30)
			took := time.Since(back)
			t.Logf("MEASURED %s: 30 messages in Redis %s after it has room", name, took.Round(time.Millisecond))
			require.Less(t, took, prompt)
			require.Zero(t, w.counts.get(consumer.Duplicate))
		})
	}
}

// TestDeadTopic: what can never be done is in the dead topic, as it came.
func TestDeadTopic(t *testing.T) {
	t.Parallel()
	for name, open := range brokers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, open(t), sinkTypes[name])
			w.startWriter(t, nil)
			expired := w.encode(t, "old", func(m *compensation.Message) { m.ValidUntil = time.Now().Add(-time.Second) })
			foreign := w.encode(t, "a", func(m *compensation.Message) { m.Queue = "others" })
			row := w.encode(t, "r", func(m *compensation.Message) {
				*m = compensation.Message{Kind: compensation.KindRow, Queue: m.Queue, Token: m.Token, ID: m.ID}
			})
			far := w.encode(t, "far", func(m *compensation.Message) { m.DueAt = time.Now().AddDate(11, 0, 0) })
			good := w.encode(t, "good", func(*compensation.Message) {})
			publish(t, w.sink, w.topic, expired, foreign, row, far, good)
			w.counts.await(t, consumer.Stored, 1)
			w.counts.await(t, consumer.Expired, 1)
			w.counts.await(t, consumer.Undecodable, 3)
			w.counts.await(t, consumer.Invalid, 1)
			dead := place{broker: w.broker, topic: source.DeadTopic(w.topic), group: w.group + "-dead"}
			r := newRecorder(nil)
			dead.start(t, r.handle)
			r.awaitAll(t, "not one", expired, foreign, row, far)
			require.NotContains(t, r.seen(), good)
		})
	}
}

func (w *world) encode(t *testing.T, id string, change func(*compensation.Message)) string {
	t.Helper()
	m := &compensation.Message{
		Kind: compensation.KindMessage, Queue: w.name, Token: "~~" + testenv.Name(t, "x")[2:16], ID: id, Topic: "order.timeout",
		DueAt: time.Now().Add(time.Hour), ValidUntil: time.Now().Add(time.Hour),
	}
	change(m)
	encoded, err := compensation.Encode(m)
	require.NoError(t, err)
	return string(encoded)
}

// TestTwice: a copy changes nothing, another message of that identity is left alone.
func TestTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t, natsBroker(testenv.NATS(t)), message.NATS)
	w.startWriter(t, nil)
	body := w.encode(t, "a", func(*compensation.Message) {})
	publish(t, w.sink, w.topic, body, body, w.encode(t, "a", func(m *compensation.Message) { m.Token = "~~another-token-" }))
	w.counts.await(t, consumer.Duplicate, 1)
	w.counts.await(t, consumer.Already, 1)
	w.counts.await(t, consumer.Stored, 1)
	require.Equal(t, 1, w.counts.get(consumer.Stored))
}

// TestCancelledForGood: a copy that comes long after a cancel brings nothing back.
// It checks I11.
func TestCancelledForGood(t *testing.T) {
	t.Parallel()
	w := newWorld(t, natsBroker(testenv.NATS(t)), message.NATS)
	w.startWriter(t, nil)
	body := w.encode(t, "a", func(*compensation.Message) {})
	publish(t, w.sink, w.topic, body)
	w.counts.await(t, consumer.Stored, 1)
	require.Equal(t, store.Done, w.queue.Producer().Cancel(t.Context(), "a", "", store.Durability{}).Code)
	const passed = 50 * time.Minute // The compensation is valid for an hour.
	remembered := 0
	for shard := range 4 {
		key := storetest.Key(w.name, shard, "gonettl")
		for _, token := range w.direct.ZRange(t.Context(), key, 0, -1).Val() {
			require.NoError(t, w.direct.ZIncrBy(t.Context(), key, -float64(passed.Milliseconds()), token).Err())
		}
		// A holder that has just come lets none go, see store: its claims do so later.
		for _, token := range w.direct.ZRangeArgs(t.Context(), redis.ZRangeArgs{Key: key, ByScore: true, Start: "-inf", Stop: time.Now().UnixMilli()}).Val() {
			require.NoError(t, w.direct.ZRem(t.Context(), key, token).Err())
			require.NoError(t, w.direct.HDel(t.Context(), storetest.Key(w.name, shard, "gone"), token).Err())
		}
		remembered += int(w.direct.HLen(t.Context(), storetest.Key(w.name, shard, "gone")).Val())
	}
	require.Equal(t, 1, remembered, "only the compensation, not the call")
	publish(t, w.sink, w.topic, body)
	w.counts.await(t, consumer.Already, 1)
	_, found, err := inspect.Get(t.Context(), w.queue, "a", "")
	require.NoError(t, err)
	require.False(t, found)
}

// relay has some rows, finds some locked, and hangs over others.
type relay struct {
	mu    sync.Mutex
	taken []string
}

func (r *relay) TakeIdentity(ctx context.Context, queue, key, id string) (found bool, err error) {
	r.mu.Lock()
	r.taken = append(r.taken, queue+" "+key+" "+id)
	r.mu.Unlock()
	switch id {
	case "locked":
		return false, errors.New("row is locked by another")
	case "hangs":
		<-ctx.Done()
		return false, ctx.Err()
	}
	return id != "gone", nil
}

// TestRow: a row is taken by the relay, once; what it cannot take it finds later by itself.
func TestRow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, natsBroker(testenv.NATS(t)), message.NATS)
	rows := new(relay)
	w.startWriter(t, rows)
	for _, id := range []string{"locked", "here", "gone"} {
		publish(t, w.sink, w.topic, w.encode(t, id, func(m *compensation.Message) {
			*m = compensation.Message{Kind: compensation.KindRow, Queue: m.Queue, Token: "~123456789abcdef", ID: m.ID, Key: "k"}
		}))
	}
	w.counts.await(t, consumer.Stored, 1)
	w.counts.await(t, consumer.Already, 1)
	w.counts.await(t, consumer.Left, 1)
	w.stop()
	require.ElementsMatch(t, []string{w.name + " k locked", w.name + " k here", w.name + " k gone"}, rows.taken)
	require.Zero(t, w.counts.get(consumer.Retried))
}
