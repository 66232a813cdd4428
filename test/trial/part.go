package trial

import (
	"context"
	"errors"
	"fmt"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"
)

// Fault is a way in which a part of a broker fails while the rest works.
type Fault string

// The faults.
const (
	// Missing is a topic that does not exist.
	Missing Fault = "missing"
	// Refusing is a topic that accepts nothing: a full stream or queue, or too few
	// replicas.
	Refusing Fault = "refusing"
	// Hanging is a topic that never answers.
	Hanging Fault = "hanging"
)

// BreakTopic is that of [Broker].
func (b natsBroker) BreakTopic(ctx context.Context, topic string, fault Fault) (heal func(context.Context) error, err error) {
	makeIt := func(ctx context.Context) error { return b.MakeTopic(ctx, topic) }
	switch fault {
	case Missing:
		return makeIt, nil
	case Hanging: // Somebody hears the subject, and no stream does.
		nc, _, err := b.connect()
		if err != nil {
			return nil, err
		}
		_, err = nc.Subscribe(topic, func(*natsgo.Msg) {})
		return func(ctx context.Context) error { nc.Close(); return makeIt(ctx) }, errors.Join(err, nc.Flush())
	default:
		full := jetstream.StreamConfig{Name: topic, Subjects: []string{topic}, Discard: jetstream.DiscardNew, MaxBytes: 1}
		err := b.withStreams(func(js jetstream.JetStream) error { _, err := js.CreateStream(ctx, full); return err })
		return func(ctx context.Context) error {
			full.MaxBytes = -1
			return b.withStreams(func(js jetstream.JetStream) error { _, err := js.UpdateStream(ctx, full); return err })
		}, err
	}
}

func (b natsBroker) withStreams(do func(jetstream.JetStream) error) error {
	nc, js, err := b.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	return do(js)
}

// BreakTopic is that of [Broker].
func (b rabbitBroker) BreakTopic(ctx context.Context, topic string, fault Fault) (heal func(context.Context) error, err error) {
	makeIt := func(ctx context.Context) error { return b.MakeTopic(ctx, topic) }
	switch fault {
	case Missing:
		return makeIt, nil
	case Hanging: // The queue's process does nothing, so nothing is confirmed.
		if err := b.MakeTopic(ctx, topic); err != nil {
			return nil, err
		}
		tell := func(ctx context.Context, verb string) error {
			return b.server.RabbitEval(ctx, fmt.Sprintf(
				`{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, <<"%s">>)), sys:%s(amqqueue:get_pid(Q)).`, topic, verb))
		}
		return func(ctx context.Context) error { return tell(ctx, "resume") }, tell(ctx, "suspend")
	default: // Arguments of a queue cannot be changed, and it holds nothing.
		full := amqp.Table{"x-max-length": 0, "x-overflow": "reject-publish"}
		err := b.withChannel(func(c *amqp.Channel) error {
			_, err := c.QueueDeclare(topic, true, false, false, false, full)
			return err
		})
		return func(ctx context.Context) error {
			err := b.withChannel(func(c *amqp.Channel) error { _, err := c.QueueDelete(topic, false, true, false); return err })
			return errors.Join(err, makeIt(ctx))
		}, err
	}
}

func (b rabbitBroker) withChannel(do func(*amqp.Channel) error) error {
	connection, channel, err := b.channel()
	if err != nil {
		return err
	}
	return errors.Join(do(channel), connection.Close())
}
