// Package retry_test has consumers of real brokers whose messages are delivered again by package delay/retry. It is here
// because the SDK's module has no client of a broker.
package retry_test

import (
	"context"
	"errors"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/delay/retry"
	"github.com/delaybridge/delaybridge/test/retry/consumers"
	"github.com/delaybridge/delaybridge/test/trial"
)

func TestRetries(t *testing.T) {
	binary, err := trial.Build(t.Context(), t.TempDir())
	require.NoError(t, err)
	for _, client := range []consumers.Client{
		{Broker: "nats", Consume: onNATS},
		{Broker: "rabbitmq", Consume: onRabbitMQ, Publisher: publishWithIDs},
		{Broker: "kafka", Consume: onKafka},
	} {
		t.Run(client.Broker, func(t *testing.T) {
			t.Parallel()
			consumers.Run(t, binary, client)
		})
	}
}

func onKafka(ctx context.Context, w *trial.World, again *retry.Retrier, handle consumers.Handler) error {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{w.Broker.Server().Addr()}, Topic: w.Topic, GroupID: "consumers", StartOffset: kafka.FirstOffset, MaxWait: 50 * time.Millisecond,
	})
	return errors.Join(consumeKafka(ctx, reader, again, handle), reader.Close())
}

func onRabbitMQ(ctx context.Context, w *trial.World, again *retry.Retrier, handle consumers.Handler) error {
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
}

func onNATS(ctx context.Context, w *trial.World, again *retry.Retrier, handle consumers.Handler) error {
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
}

// publishWithIDs publishes to RabbitMQ as a producer must there: each message has an id.
func publishWithIDs(_ context.Context, w *trial.World) (publish outbox.Publisher, end func(), err error) {
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
