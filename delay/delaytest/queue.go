package delaytest

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// prefix is a client's default prefix of the keys.
const prefix = "delay"

// Queue is a queue in memory, and the client of a producer. It is safe for concurrent
// use, except that only one goroutine at a time may call [Queue.Advance].
type Queue struct {
	// Client is a client of the queue, with the default options.
	*delay.Client

	t      testing.TB
	rdb    *redis.Client
	store  *store.Queue
	clock  clock
	bridge bridge
}

// clock is the clock of a Redis in this process.
type clock struct {
	redis *miniredis.Miniredis

	mu   sync.Mutex
	time time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.time
}

func (c *clock) set(to time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.time = to
	c.redis.SetTime(to)
}

// bridge plays what is behind the queue: a bridge, a broker, and consumers.
type bridge struct {
	mu        sync.Mutex // guards all
	claims    uint64
	paused    bool
	handlers  map[string]func(Published)
	refused   map[string]string
	published []Published
	loaded    map[string]int64 // the last row of each outbox table, see LoadOutbox
	keys      *delay.Keyring
}

var _ delay.Scheduler = (*Queue)(nil)

// Broker names a broker, whose rules decide which topics and headers are valid.
type Broker string

// The brokers.
const (
	Kafka    Broker = "kafka"
	NATS     Broker = "nats"
	PubSub   Broker = "pubsub"
	RabbitMQ Broker = "rabbitmq"
	Redis    Broker = "redis" // Streams
	SQS      Broker = "sqs"
	Webhook  Broker = "webhook"
)

// Option changes a queue.
type Option func(*options)

type options struct {
	broker Broker
	start  time.Time
	keys   *delay.Keyring
}

// WithBroker sets the broker. By default any topic of 1 to 255 bytes is valid.
func WithBroker(b Broker) Option { return func(o *options) { o.broker = b } }

// WithStart sets the clock's first time. The default is the current time.
func WithStart(at time.Time) Option { return func(o *options) { o.start = at } }

// WithKeyring is for producers that use [delay.WithEncryption]: the queue opens the bodies of
// published messages with these keys, as a bridge does, and also those of listed messages.
func WithKeyring(keys *delay.Keyring) Option { return func(o *options) { o.keys = keys } }

// New makes a queue of that name, and closes it when the test ends.
func New(t testing.TB, name string, opts ...Option) *Queue {
	t.Helper()
	o := options{start: time.Now()}
	for _, set := range opts {
		set(&o)
	}
	server := miniredis.NewMiniRedis()
	q := &Queue{
		t: t, clock: clock{redis: server},
		bridge: bridge{handlers: map[string]func(Published){}, refused: map[string]string{}, loaded: map[string]int64{}, keys: o.keys},
	}
	q.clock.set(o.start.Truncate(time.Millisecond))
	q.rdb = redis.NewClient(&redis.Options{
		Dialer:                   func(context.Context, string, string) (net.Conn, error) { return server.Dial() },
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() {
		_ = q.rdb.Close() // It has nothing to lose.
		server.Close()
	})
	q.store = store.New(q.rdb, prefix, name)
	q.Client = q.NewClient()
	// One shard, so that there is one order: that of the due times.
	_, err := q.store.Layouts().Ensure(q.ctx(), store.Layout{
		Shards: 1, Sink: message.SinkType(o.broker), MaxMessage: message.DefaultMaxSize,
	})
	q.must("make the queue", err)
	return q
}

// NewClient returns another client of the queue, for a producer with options of its own.
func (q *Queue) NewClient(opts ...delay.Option) *delay.Client {
	q.t.Helper()
	client, err := delay.NewClient(q.rdb, q.store.Name(), opts...)
	q.must("make a client", err)
	return client
}

// Now returns the clock's time in whole milliseconds.
func (q *Queue) Now() time.Time { return q.clock.now() }

// must ends the test on an error that cannot happen: nothing here fails by itself.
func (q *Queue) must(what string, err error) {
	q.t.Helper()
	if err != nil {
		q.t.Fatalf("delaytest: %s: %v", what, err)
	}
}

// ctx needs no deadline: its calls stay in this process and cannot hang. It
// outlives the test's own, for cleanups.
func (q *Queue) ctx() context.Context { return context.WithoutCancel(q.t.Context()) }
