// Package retry_test has consumers of real brokers whose messages are delivered again by package delay/retry. It is here
// because the SDK's module has no client of a broker.
package retry_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/delay/retry"
	"github.com/delaybridge/delaybridge/test/trial"
)

const (
	messages = 120
	limit    = 3
)

// consumer is what a run's consumers have seen. The first messages are handled at their limit-th repetition, every
// tenth never.
type consumer struct {
	mu       sync.Mutex
	uids     map[string]map[string]bool // of the deliveries, by origin and attempt
	handled  map[string]bool            // origins
	lateness []time.Duration
	done     chan struct{} // closed when all are handled that can be
}

func isHopeless(body string) bool { return body[len(body)-1] == '7' }

var errBusy = errors.New("busy")

func (c *consumer) handle(_ context.Context, m retry.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	body, attempt := string(m.Body), m.Attempt()
	if d, err := delay.ReadHeaders(func(name string) string { return m.Headers[name] }); err == nil {
		id := fmt.Sprint(body, " ", attempt)
		if c.uids[id] == nil {
			c.uids[id] = map[string]bool{}
			c.lateness = append(c.lateness, time.Since(d.DueAt))
		}
		c.uids[id][d.UID] = true
	}
	if attempt < limit || isHopeless(body) {
		return errBusy
	}
	if c.handled[body] = true; len(c.handled) == messages-messages/10 {
		select {
		case <-c.done:
		default:
			close(c.done)
		}
	}
	return nil
}

// forgetful is a queue whose caller sometimes dies after the call, so that the message is delivered again.
type forgetful struct{ delay.Scheduler }

var errDied = errors.New("the consumer died")

func (f forgetful) Schedule(ctx context.Context, m delay.Message, when delay.When, opts ...delay.CallOption) (delay.Result, error) {
	result, err := f.Scheduler.Schedule(ctx, m, when, opts...)
	if err == nil && rand.IntN(8) == 0 { //nolint:gosec // any will do
		err = errDied
	}
	return result, err
}

// consume runs a consumer of the world's topic until ctx ends, and begins again when it dies.
func consume(ctx context.Context, t *testing.T, w *trial.World, again *retry.Retrier, handle handler) {
	died := 0
	for ctx.Err() == nil {
		err := map[string]func() error{
			"kafka": func() error {
				reader := kafka.NewReader(kafka.ReaderConfig{
					Brokers: []string{w.Broker.Server().Addr()}, Topic: w.Topic, GroupID: "consumers", StartOffset: kafka.FirstOffset, MaxWait: 50 * time.Millisecond,
				})
				return errors.Join(consumeKafka(ctx, reader, again, handle), reader.Close())
			},
			"rabbitmq": func() error {
				connection, err := amqp.Dial(w.Broker.Server().URL())
				if err != nil {
					return err
				}
				defer context.AfterFunc(ctx, func() { _ = connection.Close() })()
				channel, err := connection.Channel()
				if err != nil {
					return errors.Join(err, connection.Close())
				}
				deliveries, err := channel.ConsumeWithContext(ctx, w.Topic, "", false, false, false, false, nil)
				if err == nil {
					err = consumeRabbitMQ(ctx, deliveries, again, handle)
				}
				_ = connection.Close() // It may be closed already.
				return err
			},
			"nats": func() error {
				nc, err := natsgo.Connect(w.Broker.Server().URL())
				if err != nil {
					return err
				}
				defer nc.Close()
				js, err := jetstream.New(nc)
				if err != nil {
					return err
				}
				durable, err := js.CreateOrUpdateConsumer(ctx, w.Topic, jetstream.ConsumerConfig{Durable: "consumers"})
				if err != nil {
					return err
				}
				received, err := durable.Messages()
				if err != nil {
					return err
				}
				defer received.Stop()
				return consumeNATS(ctx, received, again, handle)
			},
		}[w.Broker.Name()]()
		if died++; ctx.Err() == nil && !errors.Is(err, errDied) {
			t.Log("the consumer begins again: ", err)
		}
	}
	t.Log("the consumer began ", died, " times")
}

// publisher publishes as a producer does: on RabbitMQ each message has an id.
func publisher(ctx context.Context, w *trial.World) (publish outbox.Publisher, end func(), err error) {
	if w.Broker.Name() != "rabbitmq" {
		return w.Broker.Publisher(ctx)
	}
	connection, err := amqp.Dial(w.Broker.Server().URL())
	if err != nil {
		return nil, nil, err
	}
	channel, err := connection.Channel()
	publish = func(ctx context.Context, topic string, _ map[string]string, body []byte) error {
		return channel.PublishWithContext(ctx, "", topic, true, false, amqp.Publishing{MessageId: string(body), Body: body})
	}
	return publish, func() { _ = connection.Close() }, err
}

// TestRetries: messages that a consumer cannot handle come back as often as they must, though consumers die
// after they have handed them over, and the bridge is killed; each repetition is scheduled once.
func TestRetries(t *testing.T) {
	binary, err := trial.Build(t.Context(), t.TempDir())
	require.NoError(t, err)
	for _, broker := range []string{"nats", "rabbitmq", "kafka"} {
		t.Run(broker, func(t *testing.T) {
			t.Parallel()
			w, err := trial.NewWorld(t.Context(), trial.Options{Binary: binary, Broker: broker, Shards: 2})
			require.NoError(t, err)
			defer w.Close()
			const dead = "dead-letters"
			require.NoError(t, w.Broker.MakeTopic(t.Context(), dead))
			again, err := retry.New(forgetful{w.Client}, retry.Policy{
				Limit: limit, Delay: retry.Exponential(time.Millisecond, time.Second), DeadTopic: dead,
			})
			require.NoError(t, err)
			publish, end, err := publisher(t.Context(), w)
			require.NoError(t, err)
			defer end()
			c := &consumer{uids: map[string]map[string]bool{}, handled: map[string]bool{}, done: make(chan struct{})}
			ctx, stop := context.WithCancel(t.Context())
			var consumers sync.WaitGroup
			defer consumers.Wait()
			defer stop()
			consumers.Go(func() { consume(ctx, t, w, again, c.handle) })
			for i := range messages {
				require.NoError(t, publish(t.Context(), w.Topic, nil, fmt.Append(nil, "order ", i)))
				if i == messages/2 {
					require.NoError(t, w.Bridge.Kill())
					require.NoError(t, w.Bridge.Start(t.Context()))
				}
			}
			<-c.done
			want := int64(messages / 10)
			require.Eventually(t, func() bool {
				stored, err := w.Broker.Stored(t.Context(), dead)
				return err == nil && stored >= want
			}, 2*time.Minute, 50*time.Millisecond)
			stop()
			consumers.Wait()
			c.mu.Lock()
			defer c.mu.Unlock()
			for id, uids := range c.uids {
				require.Len(t, uids, 1, id)
			}
			require.Len(t, c.uids, messages*limit)
			stored, err := w.Broker.Stored(t.Context(), dead)
			require.NoError(t, err)
			require.Equal(t, want, stored)
			slices.Sort(c.lateness)
			t.Logf("%d deliveries again, late by %s at the median, %s at p99", len(c.lateness), c.lateness[len(c.lateness)/2], c.lateness[len(c.lateness)*99/100])
		})
	}
}
