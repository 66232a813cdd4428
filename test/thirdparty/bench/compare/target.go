package main

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/segmentio/kafka-go"

	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
	"github.com/delaybridge/delaybridge/test/trial"
)

// target is a broker with a way to make topics and to remove them, and its client
// library.
type target struct {
	trial.Broker

	makeTopic, dropTopic func(ctx context.Context, topic string) error
	publish              publisher
	queueKeys            string // further ones of the queue
}

// holds checks how many messages a topic has.
func (t target) holds(ctx context.Context, topic string, count int) error {
	stored, err := t.Stored(ctx, topic)
	if err == nil && stored != int64(count) {
		err = fmt.Errorf("the broker has %d messages, want %d", stored, count)
	}
	return err
}

// publishers are the client libraries.
var publishers = map[string]publisher{"nats": publishNATS, "rabbitmq": publishRabbitMQ, "kafka": publishKafka}

// openBroker starts a broker, publishes something to warm it up, and returns the
// contenders to it.
func openBroker(ctx context.Context, b *bench, name string, contenders func(trial.Broker) []contender) (*field, error) {
	broker, err := trial.StartBroker(ctx, name, "")
	if err != nil && !errors.Is(err, service.ErrMissing) { // It takes long on a busy machine, at times too long.
		broker, err = trial.StartBroker(ctx, name, "")
	}
	if errors.Is(err, service.ErrMissing) {
		return nil, errors.Join(errSkip, err)
	}
	if err != nil {
		return nil, err
	}
	f := &field{contenders: contenders(broker), close: broker.Server().Close}
	version, err := redisVersion(ctx)
	f.versions = []string{version}
	const warm = "warm"
	err = errors.Join(err, broker.MakeTopic(ctx, warm))
	if err == nil {
		err = publishers[name](ctx, broker, warm, series{load{count: b.count / 5}, none})
	}
	if err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func openNATS(ctx context.Context, b *bench) (*field, error) {
	f, err := openBroker(ctx, b, "nats", func(broker trial.Broker) []contender {
		to := target{Broker: broker, makeTopic: broker.MakeTopic, dropTopic: dropStream(broker), publish: publishNATS}
		return []contender{{toNATS, b.bridged(to)}, {fewNATS, b.drainedMinimally(to)}, {alikeNATS, b.limitAsBridged(to)}, {limitNATS, b.limit(to, none)}}
	})
	if err == nil {
		f.versions = append(f.versions, natsVersion(), "nats.go "+moduleVersion("github.com/nats-io/nats.go"))
	}
	return f, err
}

func dropStream(broker trial.Broker) func(context.Context, string) error {
	return func(ctx context.Context, topic string) error {
		nc, js, err := connectNATS(broker.Server().URL())
		if err != nil {
			return err
		}
		defer nc.Close()
		return js.DeleteStream(ctx, topic)
	}
}

func openRabbitMQ(ctx context.Context, b *bench) (*field, error) {
	version := "RabbitMQ"
	f, err := openBroker(ctx, b, "rabbitmq", func(broker trial.Broker) []contender {
		drop := func(_ context.Context, topic string) error {
			return onChannel(broker, func(channel *amqp.Channel) error {
				_, err := channel.QueueDelete(topic, false, false, false)
				return err
			})
		}
		quorum := target{Broker: broker, makeTopic: broker.MakeTopic, dropTopic: drop, publish: publishRabbitMQ}
		classic := target{Broker: broker, dropTopic: drop, publish: publishRabbitMQ, makeTopic: func(_ context.Context, topic string) error {
			return onChannel(broker, func(channel *amqp.Channel) error {
				_, err := channel.QueueDeclare(topic, true, false, false, false, nil)
				return err
			})
		}}
		version = rabbitVersion(broker)
		return []contender{
			{toQuorum, b.bridged(quorum)},
			{alikeQuorum, b.limitAsBridged(quorum)},
			{limitQuorum, b.limit(quorum, none)},
			{toClassic, b.bridged(classic)},
			{alikeClassic, b.limitAsBridged(classic)},
			{limitClassic, b.limit(classic, none)},
		}
	})
	if err == nil {
		f.versions = append(f.versions, version, "amqp091-go "+moduleVersion("github.com/rabbitmq/amqp091-go"))
	}
	return f, err
}

func onChannel(broker trial.Broker, do func(*amqp.Channel) error) error {
	connection, err := amqp.Dial(broker.Server().URL())
	if err != nil {
		return err
	}
	channel, err := connection.Channel()
	if err == nil {
		err = do(channel)
	}
	return errors.Join(err, connection.Close())
}

func rabbitVersion(broker trial.Broker) string {
	connection, err := amqp.Dial(broker.Server().URL())
	if err != nil {
		return "RabbitMQ"
	}
	defer func() { _ = connection.Close() }()
	return fmt.Sprintf("RabbitMQ %v", connection.Properties["version"])
}

func openKafka(ctx context.Context, b *bench) (*field, error) {
	f, err := openBroker(ctx, b, "kafka", func(broker trial.Broker) []contender {
		to := target{Broker: broker, makeTopic: broker.MakeTopic, dropTopic: dropKafka(broker), publish: publishKafka}
		return []contender{
			{toKafka, b.bridged(to)},
			{fewKafka, b.drainedMinimally(to)},
			{toNowhere, b.drainNowhere},
			{alikeKafka, b.limitAsBridged(to)},
			{limitKafka, b.limit(to, onlyID)},
		}
	})
	if err == nil {
		f.versions = append(f.versions, kafkaVersion(), "kafka-go "+moduleVersion("github.com/segmentio/kafka-go"))
	}
	return f, err
}

func dropKafka(broker trial.Broker) func(context.Context, string) error {
	return func(ctx context.Context, topic string) error {
		client := &kafka.Client{Addr: kafka.TCP(broker.Server().Addr()), Timeout: patience}
		response, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
		if err != nil {
			return err
		}
		return response.Errors[topic]
	}
}

// drainNowhere measures the drain to a sink that acknowledges at once.
func (b *bench) drainNowhere(ctx context.Context) (s sample, err error) {
	m, err := startRedis(ctx)
	if err != nil {
		return nil, err
	}
	defer m.close()
	o, err := newOurs(ctx, m)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, o.close(context.WithoutCancel(ctx))) }()
	s = sample{}
	return s, o.drain(ctx, s, m, load{count: b.count, size: batchSize, callers: 2, due: b.ahead(b.count, quickly)}, 0)
}
