package trial

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
)

type natsBroker struct {
	server *service.Server // nil for one that runs already
	url    string
	// memory is how long a stream knows the ids of messages, to drop copies; 0 for
	// the broker's own choice.
	memory time.Duration
}

// shortestMemory is the least that the broker allows.
const shortestMemory = 100 * time.Millisecond

func startNATS(ctx context.Context) (Broker, error) {
	server, err := service.StartNATS(ctx, "")
	if err != nil {
		return nil, err
	}
	return natsBroker{server: server, url: server.URL()}, nil
}

func (b natsBroker) Name() string            { return "nats" }
func (b natsBroker) Server() *service.Server { return b.server }
func (b natsBroker) SinkConfig() string {
	return fmt.Sprintf(`{type: nats, url: %q}`, b.url)
}

func (b natsBroker) connect() (*natsgo.Conn, jetstream.JetStream, error) {
	nc, err := natsgo.Connect(b.url, natsgo.MaxReconnects(-1), natsgo.ReconnectWait(100*time.Millisecond))
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(4000))
	return nc, js, err
}

func (b natsBroker) MakeTopic(ctx context.Context, topic string) error {
	nc, js, err := b.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: topic, Subjects: []string{topic}, Duplicates: b.memory})
	return err
}

func (b natsBroker) Consume(ctx context.Context, topic string, each func(Record)) error {
	nc, js, err := b.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	consumer, err := js.OrderedConsumer(ctx, topic, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return err
	}
	var one sync.Mutex // The client may still call when it has been stopped.
	running, err := consumer.Consume(func(m jetstream.Msg) {
		one.Lock()
		defer one.Unlock()
		meta, err := m.Metadata()
		if err != nil || ctx.Err() != nil {
			return
		}
		record := Record{Headers: map[string]string{}, Body: m.Data(), At: meta.Timestamp}
		for name, values := range m.Headers() {
			record.Headers[name] = values[0]
		}
		record.ID = record.Headers["delay-id"]
		each(record)
	})
	if err != nil {
		return err
	}
	<-ctx.Done()
	running.Stop()
	one.Lock()
	defer one.Unlock()
	return nil
}

func (b natsBroker) Publisher(limit time.Duration) (publish outbox.Publisher, end func(), err error) {
	nc, js, err := b.connect()
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, topic string, headers map[string]string, body []byte) error {
		m := natsgo.NewMsg(topic)
		m.Data = body
		for name, value := range headers {
			m.Header.Set(name, value)
		}
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		_, err := js.PublishMsg(ctx, m)
		return err
	}, nc.Close, nil
}

func (b natsBroker) Stored(ctx context.Context, topic string) (int64, error) {
	nc, js, err := b.connect()
	if err != nil {
		return 0, err
	}
	defer nc.Close()
	stream, err := js.Stream(ctx, topic)
	if err != nil {
		return 0, err
	}
	return int64(stream.CachedInfo().State.Msgs), nil
}

// CountPublishes counts what reaches the broker for a topic from now on, until
// the returned function is called: also the copies that NATS recognises and
// drops, which no consumer of a stream sees. The other brokers drop nothing, so
// there it is what the ledger got.
func (w *World) CountPublishes() (count func() int, end func(), err error) {
	b, ok := w.Broker.(natsBroker)
	if !ok {
		return w.Ledger.Arrived, func() {}, nil
	}
	nc, _, err := b.connect()
	if err != nil {
		return nil, nil, err
	}
	var published atomic.Int64
	all, err := nc.Subscribe(w.Topic, func(*natsgo.Msg) { published.Add(1) })
	if err == nil {
		err = all.SetPendingLimits(-1, -1)
	}
	if err == nil {
		err = nc.Flush() // The server has the subscription.
	}
	if err != nil {
		nc.Close()
		return nil, nil, err
	}
	return func() int { return int(published.Load()) }, nc.Close, nil
}
