// Package retry_test has consumers with franz-go and Watermill whose messages are delivered again by package delay/retry. They are
// here, and not in test/retry, to keep both out of the root's go.mod.
package retry_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/delay/retry"
	"github.com/delaybridge/delaybridge/test/retry/consumers"
	"github.com/delaybridge/delaybridge/test/trial"
)

func TestRetries(t *testing.T) {
	binary, err := trial.Build(t.Context(), t.TempDir())
	require.NoError(t, err)
	for name, client := range map[string]consumers.Client{
		"franz-go":  {Broker: "kafka", Consume: onFranz},
		"watermill": {Broker: "rabbitmq", Consume: onWatermill, Publisher: publishByWatermill},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			consumers.Run(t, binary, client)
		})
	}
}

func onFranz(ctx context.Context, w *trial.World, again *retry.Retrier, handle consumers.Handler) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(w.Broker.Server().Addr()), kgo.ConsumerGroup("consumers"), kgo.ConsumeTopics(w.Topic),
		kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(50*time.Millisecond),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	return consumeFranz(ctx, client, again, handle)
}

// watermillConfig is Watermill's own for a durable queue, and has quorum queues.
func watermillConfig(w *trial.World) amqp.Config {
	config := amqp.NewDurableQueueConfig(w.Broker.Server().URL())
	config.Queue.Arguments = amqp091.Table{"x-queue-type": "quorum"}
	config.Marshaler = quorumMarshaler{}
	return config
}

// quorumMarshaler takes what a quorum queue delivers again: it has a header x-delivery-count, a number, which Watermill's
// own marshaler refuses.
type quorumMarshaler struct{ amqp.DefaultMarshaler }

func (m quorumMarshaler) Unmarshal(d amqp091.Delivery) (*message.Message, error) {
	delete(d.Headers, "x-delivery-count")
	return m.DefaultMarshaler.Unmarshal(d)
}

// onWatermill ends its router when a handler fails, as a consumer that dies.
func onWatermill(ctx context.Context, w *trial.World, again *retry.Retrier, handle consumers.Handler) error {
	running, die := context.WithCancelCause(ctx)
	defer die(nil)
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	subscriber, err := amqp.NewSubscriber(watermillConfig(w), watermill.NopLogger{})
	if err != nil {
		return err
	}
	router.AddMiddleware(func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			produced, err := next(msg)
			if err != nil {
				die(err)
			}
			return produced, err
		}
	}, redeliver(again))
	router.AddConsumerHandler("handle", w.Topic, subscriber, func(msg *message.Message) error {
		return handle(msg.Context(), retry.Message{Headers: msg.Metadata, Body: msg.Payload})
	})
	err = errors.Join(router.Run(running), subscriber.Close())
	return errors.Join(context.Cause(running), err)
}

func publishByWatermill(_ context.Context, w *trial.World) (publish outbox.Publisher, end func(), err error) {
	publisher, err := amqp.NewPublisher(watermillConfig(w), watermill.NopLogger{})
	return func(_ context.Context, topic string, _ map[string]string, body []byte) error {
		return publisher.Publish(topic, message.NewMessage(watermill.NewUUID(), body))
	}, func() { _ = publisher.Close() }, err
}
