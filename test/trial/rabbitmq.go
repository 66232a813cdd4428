package trial

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
)

// quorum makes the topics quorum queues, as production has them.
var quorum = amqp.Table{"x-queue-type": "quorum"}

type rabbitBroker struct{ server *service.Server }

func startRabbitMQ(ctx context.Context) (Broker, error) {
	server, err := service.StartRabbitMQ(ctx, "")
	return rabbitBroker{server}, err
}

func (b rabbitBroker) Name() string            { return "rabbitmq" }
func (b rabbitBroker) Server() *service.Server { return b.server }
func (b rabbitBroker) SinkConfig() string {
	return fmt.Sprintf(`{type: rabbitmq, url: %q}`, b.server.URL())
}

func (b rabbitBroker) channel() (*amqp.Connection, *amqp.Channel, error) {
	connection, err := amqp.Dial(b.server.URL())
	if err != nil {
		return nil, nil, err
	}
	channel, err := connection.Channel()
	return connection, channel, err
}

// ofNobody is the type of a message that only makes a queue's leader sure of itself.
const ofNobody = "of nobody"

// MakeTopic has an empty queue take a message, which expires. A quorum queue of RabbitMQ 3.10 whose broker is killed before
// its first message has no leader from then on, and takes nothing from anybody.
func (b rabbitBroker) MakeTopic(ctx context.Context, topic string) error {
	connection, channel, err := b.channel()
	if err != nil {
		return err
	}
	queue, err := channel.QueueDeclare(topic, true, false, false, false, quorum)
	if err == nil && queue.Messages == 0 {
		err = takesOne(ctx, channel, topic)
	}
	return errors.Join(err, connection.Close())
}

func takesOne(ctx context.Context, channel *amqp.Channel, topic string) error {
	if err := channel.Confirm(false); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	confirmation, err := channel.PublishWithDeferredConfirm("", topic, true, false,
		amqp.Publishing{DeliveryMode: amqp.Persistent, Type: ofNobody, Expiration: "1"})
	if err != nil {
		return err
	}
	_, err = confirmation.WaitContext(ctx)
	return err
}

// Consume connects again when the broker comes back.
func (b rabbitBroker) Consume(ctx context.Context, topic string, each func(Record)) error {
	// A consumer's own repetition is no copy of ours. But what a broker has redelivered may be new: it died, or the
	// connection did, before the first delivery arrived.
	seen := map[string]bool{}
	isNew := func(d *amqp.Delivery) bool {
		copied := fmt.Sprint(d.Headers[delay.HeaderUID], " ", d.Headers[delay.HeaderAttempt])
		isRepeated := d.Redelivered && seen[copied]
		seen[copied] = true
		return !isRepeated
	}
	for {
		_ = b.consume(ctx, topic, isNew, each) // A broker that is down is what some runs are about.
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (b rabbitBroker) consume(ctx context.Context, topic string, isNew func(*amqp.Delivery) bool, each func(Record)) error {
	connection, channel, err := b.channel()
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	if err := channel.Qos(1000, 0, false); err != nil {
		return err
	}
	deliveries, err := channel.ConsumeWithContext(ctx, topic, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	for d := range deliveries {
		record := Record{ID: d.MessageId, Headers: map[string]string{}, Body: d.Body, At: time.Now(), Seen: true}
		for name, value := range d.Headers {
			record.Headers[name], _ = value.(string)
		}
		if d.Type != ofNobody && isNew(&d) {
			each(record)
		}
		if err := d.Ack(false); err != nil {
			return err
		}
	}
	return nil
}

func (b rabbitBroker) Stored(_ context.Context, topic string) (int64, error) {
	connection, channel, err := b.channel()
	if err != nil {
		return 0, err
	}
	defer func() { _ = connection.Close() }()
	queue, err := channel.QueueDeclarePassive(topic, true, false, false, false, quorum)
	return int64(queue.Messages), err
}

func (b rabbitBroker) Publisher(limit time.Duration) (publish outbox.Publisher, end func(), err error) {
	connection, channel, err := b.channel()
	if err != nil {
		return nil, nil, err
	}
	if err := channel.Confirm(false); err != nil {
		return nil, nil, errors.Join(err, connection.Close())
	}
	return func(ctx context.Context, topic string, headers map[string]string, body []byte) error {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		table := amqp.Table{}
		for name, value := range headers {
			table[name] = value
		}
		confirmation, err := channel.PublishWithDeferredConfirm("", topic, true, false,
			amqp.Publishing{DeliveryMode: amqp.Persistent, Headers: table, Body: body})
		if err != nil {
			return err
		}
		if ok, err := confirmation.WaitContext(ctx); err != nil || !ok {
			return errors.Join(err, errors.New("not confirmed"))
		}
		return nil
	}, func() { _ = connection.Close() }, nil
}
