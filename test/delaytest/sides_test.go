package delaytest_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/delaytest"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/poller"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is the queue in memory as a [side].
type fake struct{ *delaytest.Queue }

func newFake(t *testing.T) fake {
	return fake{delaytest.New(t, "orders", delaytest.WithBroker(delaytest.NATS))}
}

func (f fake) client(opts ...delay.Option) delay.Scheduler            { return f.NewClient(opts...) }
func (f fake) now() time.Time                                         { return f.Now() }
func (f fake) pass(d time.Duration)                                   { f.Advance(d) }
func (f fake) published() []delaytest.Published                       { return f.Published() }
func (f fake) handle(topic string, consume func(delaytest.Published)) { f.Handle(topic, consume) }
func (f fake) refuse(topic, reason string)                            { f.Refuse(topic, reason) }
func (f fake) pause()                                                 { f.Pause() }
func (f fake) resume()                                                { f.Resume() }

// bridge is a queue in a real Redis with a bridge's poller, and the sink behind that.
type bridge struct {
	t     *testing.T
	rdb   *redis.Client
	queue *store.Queue
	poll  *poller.Poller

	mu       sync.Mutex
	handlers map[string]func(delaytest.Published)
	refused  map[string]string
	all      []delaytest.Published
}

func newReal(t *testing.T) *bridge {
	t.Helper()
	options, err := redis.ParseURL(testenv.Redis(t))
	require.NoError(t, err)
	b := &bridge{
		t: t, rdb: redis.NewClient(options), handlers: map[string]func(delaytest.Published){}, refused: map[string]string{},
	}
	t.Cleanup(func() { assert.NoError(t, b.rdb.Close()) })
	b.queue = store.New(b.rdb, "delay", testenv.Name(t, "q"))
	_, err = b.queue.Layouts().Ensure(t.Context(), store.Layout{Shards: 1, Sink: message.NATS, MaxMessage: message.DefaultMaxSize})
	require.NoError(t, err)
	t.Cleanup(func() { b.pause() })
	b.resume()
	return b
}

func (b *bridge) client(opts ...delay.Option) delay.Scheduler {
	client, err := delay.NewClient(b.rdb, b.queue.Name(), opts...)
	require.NoError(b.t, err)
	return client
}

func (b *bridge) now() time.Time {
	now, err := b.queue.Clock(b.t.Context())
	require.NoError(b.t, err)
	return now
}

// roundedUp is how far due times are rounded up, twice.
const roundedUp = 2 * time.Millisecond

// pass waits until the time is over, and nothing is due or in flight any more.
func (b *bridge) pass(d time.Duration) {
	end := b.now().Add(d)
	require.Eventually(b.t, func() bool {
		if b.poll == nil { // An outage, in which nothing is published.
			return b.now().After(end)
		}
		b.poll.Wake(0) // Hints are the wiring's to pass on.
		isOver := b.now().After(end.Add(roundedUp))
		stats, err := inspect.NewAdmin(b.queue).Stats(b.t.Context(), 0)
		return isOver && err == nil && stats.Due == 0 && stats.InFlight == 0
	}, time.Minute, 5*time.Millisecond)
}

func (b *bridge) resume() {
	var err error
	b.poll, err = poller.New(poller.Config{
		Queue: b.queue.Name(), Instance: message.NewInstance("conformance"), Shards: []int{0},
		Store: func(shard int) poller.Store { return b.queue.Shard(shard) },
		Sink:  poller.Sink{Sink: b, Name: "memory"},
	})
	require.NoError(b.t, err)
	require.NoError(b.t, b.poll.Start(b.t.Context()))
}

func (b *bridge) pause() {
	if b.poll != nil {
		assert.NoError(b.t, b.poll.Stop(context.WithoutCancel(b.t.Context())))
		b.poll = nil
	}
}

func (b *bridge) handle(topic string, consume func(delaytest.Published)) { b.handlers[topic] = consume }

func (b *bridge) refuse(topic, reason string) { b.refused[topic] = reason }

func (b *bridge) published() []delaytest.Published {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all
}

// Publish makes the bridge a sink.
func (b *bridge) Publish(_ context.Context, batch []message.Message, outcomes *sinks.Outcomes) {
	for i := range batch {
		outcomes.Report(i, b.publish(&batch[i]))
	}
}

func (b *bridge) publish(m *message.Message) sinks.Outcome {
	if _, isRefused := b.refused[m.Topic]; isRefused {
		return sinks.Failed(sinks.Permanent, sinks.ReasonInvalid, errors.New("refused"))
	}
	p := delaytest.Published{
		ID: m.ID, Key: m.Key, Topic: m.Topic, Body: append([]byte{}, m.Body...), Headers: map[string]string{}, DueAt: m.DueAt, At: b.queue.Now(),
	}
	for _, h := range m.PublishedHeaders() {
		p.Headers[h.Name] = h.Value
	}
	b.mu.Lock()
	b.all = append(b.all, p)
	b.mu.Unlock()
	if handle := b.handlers[m.Topic]; handle != nil {
		handle(p)
	}
	return sinks.Acked()
}

func (b *bridge) Route(m *message.Message) sinks.Route { return sinks.Route(m.Topic) }
func (b *bridge) Ping(context.Context) error           { return nil }
func (b *bridge) Close(context.Context) error          { return nil }
