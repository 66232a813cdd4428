package consumer_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/kafka"
	"github.com/delaybridge/delaybridge/internal/sinks/kind"
	"github.com/delaybridge/delaybridge/internal/sinks/nats"
	"github.com/delaybridge/delaybridge/internal/sinks/rabbitmq"
	"github.com/delaybridge/delaybridge/internal/sinks/redis"
	"github.com/delaybridge/delaybridge/internal/sinks/source"
)

func TestMain(m *testing.M) {
	// After some failed dials go-redis' pool looks once a second whether the
	// server is back, and notices only then that it was closed.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// patience is for slow machines.
const patience = 3 * time.Minute

func logger(t testing.TB) *slog.Logger {
	if os.Getenv("TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("test", t.Name())
}

// broker is one broker.
type broker struct{ kind.Settings }

func kafkaBroker(addresses ...string) broker {
	return broker{kafka.Config{Brokers: addresses, Name: "suite"}}
}

func rabbitBroker(url, exchange string) broker {
	return broker{rabbitmq.Config{URL: url, Name: "suite", Exchange: exchange, Connections: 1}}
}

func natsBroker(url string) broker { return broker{nats.Config{URL: url, Name: "suite"}} }

func redisBroker(url string) broker { return broker{redis.Config{URL: url, Name: "suite"}} }

// brokers are the shared ones.
var brokers = map[string]func(testing.TB) broker{
	"kafka":    func(t testing.TB) broker { return kafkaBroker(testenv.Kafka(t)...) },
	"rabbitmq": func(t testing.TB) broker { return rabbitBroker(testenv.RabbitMQ(t), "") },
	"nats":     func(t testing.TB) broker { return natsBroker(testenv.NATS(t)) },
	"redis":    func(t testing.TB) broker { return redisBroker(testenv.Redis(t)) },
}

// privates are brokers that a test may kill.
var privates = map[string]func(testing.TB) (broker, *testenv.Server){
	"kafka": func(t testing.TB) (broker, *testenv.Server) {
		server := testenv.StartKafka(t, "")
		return kafkaBroker(server.Addr()), server
	},
	"rabbitmq": func(t testing.TB) (broker, *testenv.Server) {
		server := testenv.StartRabbitMQ(t, "")
		return rabbitBroker(server.URL(), ""), server
	},
	"nats": func(t testing.TB) (broker, *testenv.Server) {
		server := testenv.StartNATS(t, "")
		return natsBroker(server.URL()), server
	},
	"redis": func(t testing.TB) (broker, *testenv.Server) {
		server := testenv.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
		return redisBroker("redis://" + server.Addr()), server
	},
}

// place is a topic of a broker.
type place struct {
	broker
	topic, group string
}

func (b broker) place(t testing.TB) place {
	name := testenv.Name(t, "orders")
	return place{broker: b, topic: "delay.compensation." + name, group: source.Group("delay", name)}
}

// start runs a source; stop ends it and waits.
func (p place) start(t testing.TB, handle source.Handler) (stop func()) {
	return p.startWhen(t, nil, handle)
}

// startWhen is start of a source that asks whether it may take anything.
func (p place) startWhen(t testing.TB, ready func(context.Context) error, handle source.Handler) (stop func()) {
	consumed, is := p.Settings.(kind.Consumed)
	require.True(t, is)
	source, err := consumed.Source(source.Options{Topic: p.topic, Group: p.group, Ready: ready, Logger: logger(t)})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { source.Run(ctx, handle) })
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return stop
}

// openSink opens one that ends with the test.
func (p place) openSink(t testing.TB) sinks.Sink {
	sink, err := p.Open(logger(t))
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = sink.Close(ctx)
	})
	return sink
}

// publish gives bodies to the broker, and again until it has them.
func publish(t testing.TB, sink sinks.Sink, topic string, bodies ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for i, body := range bodies {
		m := message.Message{
			ID: testenv.Name(t, "id"), Key: fmt.Sprint(i), Topic: topic, Body: []byte(body), Queue: "orders",
			DueAt: time.Now(), ScheduledAt: time.Now(), Attempt: 1, Token: testenv.Name(t, "t"),
		}
		require.Eventually(t, func() bool {
			return sinks.Publish(ctx, sink, []message.Message{m})[0].Class == sinks.Acknowledged
		}, patience, 50*time.Millisecond)
	}
}

// recorder is a handler that remembers.
type recorder struct {
	mu      sync.Mutex
	bodies  []string
	again   []string
	verdict func(body string) error // nil: done
	changed chan struct{}
}

func newRecorder(verdict func(string) error) *recorder {
	return &recorder{verdict: verdict, changed: make(chan struct{}, 1)}
}

func (r *recorder) handle(_ context.Context, batch []*source.Delivery) []error {
	errs := make([]error, len(batch))
	for i, d := range batch {
		if r.verdict != nil {
			errs[i] = r.verdict(string(d.Body))
		}
		r.mu.Lock()
		r.bodies = append(r.bodies, string(d.Body))
		if d.Redelivered {
			r.again = append(r.again, string(d.Body))
		}
		r.mu.Unlock()
	}
	select {
	case r.changed <- struct{}{}:
	default:
	}
	return errs
}

func (r *recorder) seen() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.bodies)
}

func (r *recorder) redelivered() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.again)
}

// await waits until the handler has seen what the condition wants.
func (r *recorder) await(t testing.TB, what string, condition func(seen []string) bool) {
	t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for !condition(r.seen()) {
		select {
		case <-r.changed:
		case <-timeout.C:
			require.Fail(t, "did not come", "%s; seen: %v", what, r.seen())
		}
	}
}

func (r *recorder) awaitAll(t testing.TB, bodies ...string) {
	t.Helper()
	r.await(t, fmt.Sprint(bodies), func(seen []string) bool {
		for _, body := range bodies {
			if !slices.Contains(seen, body) {
				return false
			}
		}
		return true
	})
}
