package retry_test

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/segmentio/kafka-go"

	"github.com/delaybridge/delaybridge/delay/retry"
	"github.com/delaybridge/delaybridge/test/retry/consumers"
)

// consumeKafka consumes with kafka-go, in a consumer group.
func consumeKafka(ctx context.Context, reader *kafka.Reader, again *retry.Retrier, handle consumers.Handler) error {
	for {
		record, err := reader.FetchMessage(ctx)
		if err != nil {
			return err
		}
		m := retry.Message{
			Name:  fmt.Sprintf("%s/%d/%d", record.Topic, record.Partition, record.Offset),
			Topic: record.Topic, Key: string(record.Key), Headers: map[string]string{}, Body: record.Value,
		}
		for _, h := range record.Headers {
			m.Headers[h.Key] = string(h.Value)
		}
		if err := again.Handle(ctx, m, handle); err != nil {
			return err // Nothing is committed: begin here again.
		}
		if err := reader.CommitMessages(ctx, record); err != nil {
			return err
		}
	}
}

// consumeRabbitMQ consumes with amqp091-go. Each message has a message id; what the bridge publishes has one.
func consumeRabbitMQ(ctx context.Context, deliveries <-chan amqp.Delivery, again *retry.Retrier, handle consumers.Handler) error {
	for d := range deliveries {
		m := retry.Message{Name: d.MessageId, Topic: d.RoutingKey, Headers: map[string]string{}, Body: d.Body}
		for name, value := range d.Headers {
			m.Headers[name] = fmt.Sprint(value)
		}
		err := again.Handle(ctx, m, handle)
		if err != nil {
			err = d.Nack(false, true) // Redis is away: deliver it once more.
		} else {
			err = d.Ack(false)
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// consumeNATS consumes with nats.go, from JetStream.
func consumeNATS(ctx context.Context, messages jetstream.MessagesContext, again *retry.Retrier, handle consumers.Handler) error {
	for {
		msg, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		meta, err := msg.Metadata()
		if err != nil {
			return err
		}
		m := retry.Message{
			Name: fmt.Sprintf("%s/%d", meta.Stream, meta.Sequence.Stream), Topic: msg.Subject(), Headers: map[string]string{}, Body: msg.Data(),
		}
		for name := range msg.Headers() {
			m.Headers[name] = msg.Headers().Get(name)
		}
		err = again.Handle(ctx, m, handle)
		if err != nil {
			err = msg.Nak() // Redis is away: deliver it once more.
		} else {
			err = msg.Ack()
		}
		if err != nil {
			return err
		}
	}
}
