package trial

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/faultproxy"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
)

// World is a Redis, a broker, and a bridge between them, in a scratch folder.
type World struct {
	Dir string
	// Redis is the one server, and Group nil, or the other way round.
	Redis *service.Server
	Group *Group
	// Replica is that of the one server, if there is one.
	Replica *service.Server
	Broker  Broker
	// Link is between the bridge and the broker; nil if there is none. All others
	// reach the broker past it.
	Link *faultproxy.Proxy
	// Database is nil without an outbox.
	Database *Database
	Bridge   *Bridge
	RDB      redis.UniversalClient
	Client   *delay.Client
	Topic    string
	Ledger   *Ledger

	setup  Setup
	queue  *store.Queue
	others []*Bridge
}

// Options say how a world is made.
type Options struct {
	Binary, Broker string
	Shards         int
	// Queues are further queues, with as many shards.
	Queues []string
	// Redis are further arguments of redis-server; Program is another program that runs as the one
	// server, as for service.StartRedisProgram.
	Redis   []string
	Program string
	// Kafka are further properties of Kafka.
	Kafka string
	// Replica gives the one server a replica.
	Replica bool
	// QueueKeys are further keys of the queues, as "durability: replicas".
	QueueKeys string
	// Config are further lines of the bridge's configuration.
	Config string
	// Mode is "sentinel" or "cluster" for a group of servers.
	Mode string
	// Copies makes the broker keep each copy of a message that the bridge
	// publishes, also where it knows the message's id.
	Copies bool
	// Link puts a proxy between the bridge and the broker.
	Link bool
	// Database is "postgres" or "mariadb" for a database with an outbox.
	Database string
	// Outbox are further keys of the outbox's section.
	Outbox string
	// Reverts lets the database be reverted.
	Reverts bool
}

// queueName is the queue of every world.
const queueName = "orders"

// Queue is the queue's name.
func (w *World) Queue() string { return w.setup.Queue }

// Shards is how many shards the queue began with.
func (w *World) Shards() int { return w.setup.Shards }

// Prefix is that of all keys in Redis.
func (w *World) Prefix() string { return w.setup.Prefix }

// NewWorld starts Redis, the broker and the bridge, and makes a topic.
func NewWorld(ctx context.Context, o Options) (*World, error) {
	w, err := makeWorld(ctx, o)
	if err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// Attach returns a world whose Redis, NATS and bridges run already, and which it neither stops nor harms.
func Attach(ctx context.Context, redisURL, natsURL, prefix, queue string) (*World, error) {
	w := &World{
		Topic: "trial-" + strings.ToLower(rand.Text()[:8]), Ledger: NewLedger(), Broker: natsBroker{url: natsURL},
		setup: Setup{Prefix: prefix, Queue: queue},
	}
	options, err := redis.ParseURL(redisURL)
	if err != nil {
		return nil, err
	}
	w.RDB = redis.NewClient(options)
	w.queue = store.New(w.RDB, prefix, queue)
	if w.Client, err = delay.NewClient(w.RDB, queue, delay.WithPrefix(prefix)); err != nil {
		return nil, err
	}
	return w, w.Broker.MakeTopic(ctx, w.Topic)
}

// newPair is a world with two bridges, whose ledger is fed until stop is called.
func newPair(ctx context.Context, o Options) (w *World, stop func() error, err error) {
	if w, err = NewWorld(ctx, o); err != nil {
		return nil, nil, err
	}
	second, err := w.SecondBridge(ctx)
	if err == nil {
		err = second.Start(ctx)
	}
	if err != nil {
		w.Close()
		return nil, nil, err
	}
	return w, w.Consume(ctx), nil
}

// stopAll stops the bridges, and returns how often they were killed and what they have printed.
func (w *World) stopAll() (kills int, log string, err error) {
	for _, b := range w.Bridges() {
		if failure := b.Stop(); failure != nil {
			err = errors.Join(err, fmt.Errorf("stop a bridge: %w", failure))
		}
		kills += b.kills
		log += b.Log()
	}
	return kills, log, err
}

func makeWorld(ctx context.Context, o Options) (*World, error) {
	w := &World{Topic: "trial-" + strings.ToLower(rand.Text()[:8]), Ledger: NewLedger()}
	var err error
	if w.Dir, err = os.MkdirTemp("", "delaybridge-trial-"); err != nil {
		return w, err
	}
	section, err := w.startRedis(ctx, o)
	if err != nil {
		return w, err
	}
	sink, err := w.startBroker(ctx, o)
	if err != nil {
		return w, err
	}
	extra := o.Config
	if o.Database != "" {
		if w.Database, err = StartDatabase(ctx, o.Database, o.Reverts); err != nil {
			return w, err
		}
		extra += w.Database.section(o.Outbox)
	}
	w.setup = Setup{
		Redis: section, Prefix: "trial", Queue: queueName, Shards: o.Shards, Sink: sink, Extra: extra,
		Queues: o.Queues, QueueKeys: o.QueueKeys,
	}
	if w.Bridge, err = NewBridge(ctx, o.Binary, w.Dir, w.setup); err != nil {
		return w, err
	}
	w.queue = store.New(w.RDB, w.setup.Prefix, w.setup.Queue)
	if w.Client, err = delay.NewClient(w.RDB, w.setup.Queue, delay.WithPrefix(w.setup.Prefix)); err != nil {
		return w, err
	}
	if err := w.Broker.MakeTopic(ctx, w.Topic); err != nil {
		return w, err
	}
	if w.Database != nil {
		if err := w.Bridge.Migrate(ctx); err != nil {
			return w, err
		}
	}
	return w, w.Bridge.Start(ctx)
}

// startBroker starts the broker, and before it the link to it, which a broker that advertises
// its address has to know. It returns the sink's section, too.
func (w *World) startBroker(ctx context.Context, o Options) (sink string, err error) {
	properties := o.Kafka
	if o.Link {
		if w.Link, err = faultproxy.New(ctx, ""); err != nil {
			return "", err
		}
		properties += "\nadvertised.listeners=PLAINTEXT://" + w.Link.Addr()
	}
	broker, err := StartBroker(ctx, o.Broker, properties)
	if err != nil {
		return "", err
	}
	if b, ok := broker.(natsBroker); ok && o.Copies {
		b.memory = shortestMemory
		broker = b
	}
	w.Broker, sink = broker, broker.SinkConfig()
	if w.Link != nil {
		w.Link.Forward(broker.Server().Addr())
		sink = strings.ReplaceAll(sink, broker.Server().Addr(), w.Link.Addr())
	}
	return sink, nil
}

// startRedis returns the section of a configuration, too.
func (w *World) startRedis(ctx context.Context, o Options) (section string, err error) {
	redis.SetLogger(silentLogger{})
	if o.Mode != "" {
		if w.Group, err = startGroup(ctx, o.Mode); err != nil {
			return "", err
		}
		w.RDB = w.Group.client(nil)
		return w.Group.config(), nil
	}
	if w.Redis, err = service.StartRedisProgram(ctx, o.Program, o.Redis...); err != nil {
		return "", err
	}
	if o.Replica {
		host, port, err := net.SplitHostPort(w.Redis.Addr())
		if err != nil {
			return "", err
		}
		if w.Replica, err = service.StartRedis(ctx, "--replicaof", host+" "+port); err != nil {
			return "", err
		}
	}
	w.RDB = w.RedisBy(nil)
	return fmt.Sprintf("{url: %q}", w.Redis.URL()), nil
}

// Dialer makes the connections of a client.
type Dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// RedisBy is another client of a producer, whose connections dial makes; nil for the usual way.
// Who asks for it closes it.
func (w *World) RedisBy(dial Dialer) redis.UniversalClient {
	if w.Group != nil {
		return w.Group.client(dial)
	}
	return redis.NewClient(&redis.Options{Addr: w.Redis.Addr(), PoolSize: poolSize, Dialer: dial})
}

// SecondBridge is another instance with the same configuration but its port.
// Close ends it.
func (w *World) SecondBridge(ctx context.Context) (*Bridge, error) {
	return w.BridgeOf(ctx, w.Bridge.binary)
}

// BridgeOf is a second bridge of another build.
func (w *World) BridgeOf(ctx context.Context, binary string) (*Bridge, error) {
	dir, err := os.MkdirTemp(w.Dir, "second-")
	if err != nil {
		return nil, err
	}
	b, err := NewBridge(ctx, binary, dir, w.setup)
	if err == nil {
		w.others = append(w.others, b)
	}
	return b, err
}

// Bridges are all instances that were made.
func (w *World) Bridges() []*Bridge {
	if w.Bridge == nil {
		return nil
	}
	return append([]*Bridge{w.Bridge}, w.others...)
}

// Store is the first queue, as the bridge's own packages know it.
func (w *World) Store() *store.Queue { return w.queue }

// Consume feeds the ledger until the returned function is called.
func (w *World) Consume(ctx context.Context) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- w.Broker.Consume(ctx, w.Topic, w.Ledger.Got) }()
	return func() error {
		cancel()
		return <-done
	}
}

// Totals are the sums over all shards.
type Totals struct {
	Waiting, InFlight, Dead int64
	Counters                map[string]int64
}

// Totals reads the shards' statistics, again where Redis has not answered: a failover may just have ended, or
// the machine have stood still.
func (w *World) Totals(ctx context.Context) (totals Totals, err error) {
	for range 4 {
		if totals, err = w.readTotals(ctx); err == nil || ctx.Err() != nil {
			return totals, err
		}
	}
	return totals, err
}

func (w *World) readTotals(ctx context.Context) (Totals, error) {
	totals := Totals{Counters: map[string]int64{}}
	layout, err := w.queue.LoadLayout(ctx) // The shards may have changed since the last look.
	if err != nil {
		return totals, err
	}
	maps.Copy(totals.Counters, layout.Retired)
	for shard := range layout.Polled() {
		stats, err := inspect.NewAdmin(w.queue).Stats(ctx, shard)
		if err != nil {
			return totals, err
		}
		totals.Waiting += stats.Waiting
		totals.InFlight += stats.InFlight
		totals.Dead += stats.Dead
		for name, n := range stats.Counters {
			totals.Counters[name] += n
		}
	}
	return totals, nil
}

// Unbalanced says by how much the counters miss the sum that always holds.
func (t Totals) Unbalanced() int64 {
	c := t.Counters
	return c["scheduled"] - t.Waiting - t.InFlight - t.Dead - c["published"] - c["cancelled"] - c["replaced"] - c["purged"] - c["dropped"]
}

// Drained waits until nothing waits and nothing is in flight, and returns when
// that was.
func (w *World) Drained(ctx context.Context) (time.Time, error) {
	for {
		totals, err := w.Totals(ctx)
		if err == nil && totals.Waiting == 0 && totals.InFlight == 0 {
			return time.Now(), nil
		}
		select {
		case <-ctx.Done():
			return time.Time{}, errors.Join(ctx.Err(), fmt.Errorf("not drained: %+v", totals))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Close stops everything.
func (w *World) Close() {
	for _, b := range w.Bridges() {
		b.close()
	}
	if w.RDB != nil {
		_ = w.RDB.Close()
	}
	if w.Link != nil {
		w.Link.Close()
	}
	if w.Broker != nil {
		w.Broker.Server().Close()
	}
	for _, server := range []*service.Server{w.Replica, w.Redis} {
		if server != nil {
			server.Close()
		}
	}
	if w.Group != nil {
		w.Group.close()
	}
	if w.Database != nil {
		w.Database.close()
	}
	_ = os.RemoveAll(w.Dir)
}
