package inlet_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// letter is a message at a broker.
type letter struct {
	key, id string // the record's key, and the message-id
	content string // the content's type, where that is a property
	headers map[string]string
	body    string
}

// broker is one of the brokers, with the topics of a test.
type broker interface {
	// sink and from are the settings of the sink and of the inlet.
	sink() string
	from() string
	// topic is the name of a topic.
	topic(name string) string
	publish(t testing.TB, letters ...letter)
	// consume hands over what comes to a topic, from its beginning, until the test ends.
	consume(t testing.TB, topic string) <-chan letter
}

var topics = []string{"commands", "out", "replies", "dead"}

var brokers = map[string]func(testing.TB) broker{"kafka": newKafka, "rabbitmq": newRabbit, "nats": newNATS}

func forward(t testing.TB, to chan<- letter, l letter) {
	select {
	case to <- l:
	case <-t.Context().Done():
	}
}

type kafkaBroker struct {
	address string
	name    string
	writer  *kafkago.Writer
}

func newKafka(t testing.TB) broker {
	b := &kafkaBroker{address: testenv.Kafka(t)[0], name: testenv.Name(t, "in")}
	conn, err := kafkago.DialContext(t.Context(), "tcp", b.address)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	for _, name := range topics {
		require.NoError(t, conn.CreateTopics(kafkago.TopicConfig{Topic: b.topic(name), NumPartitions: 1, ReplicationFactor: 1}))
		require.Eventually(t, func() bool {
			partitions, err := conn.ReadPartitions(b.topic(name))
			return err == nil && len(partitions) == 1 && partitions[0].Leader.Host != ""
		}, patience, 20*time.Millisecond)
	}
	b.writer = &kafkago.Writer{
		Addr: kafkago.TCP(b.address), Topic: b.topic("commands"), RequiredAcks: kafkago.RequireAll, BatchTimeout: time.Millisecond, MaxAttempts: 20,
	}
	t.Cleanup(func() { _ = b.writer.Close() })
	return b
}

func (b *kafkaBroker) sink() string             { return fmt.Sprintf(`{type: kafka, brokers: [%q]}`, b.address) }
func (b *kafkaBroker) from() string             { return b.topic("commands") }
func (b *kafkaBroker) topic(name string) string { return b.name + "." + name }

func (b *kafkaBroker) publish(t testing.TB, letters ...letter) {
	t.Helper()
	var list []kafkago.Message
	for _, l := range letters {
		m := kafkago.Message{Key: []byte(l.key), Value: []byte(l.body)}
		for name, value := range l.headers {
			m.Headers = append(m.Headers, kafkago.Header{Key: name, Value: []byte(value)})
		}
		list = append(list, m)
	}
	require.Eventually(t, func() bool { // A topic that was just made is not known everywhere, and nothing is written then.
		err := b.writer.WriteMessages(t.Context(), list...)
		if !errors.Is(err, kafkago.UnknownTopicOrPartition) {
			require.NoError(t, err)
		}
		return err == nil
	}, patience, 50*time.Millisecond)
}

func (b *kafkaBroker) consume(t testing.TB, topic string) <-chan letter {
	to := make(chan letter)
	reader := kafkago.NewReader(kafkago.ReaderConfig{
		Brokers: []string{b.address}, Topic: b.topic(topic), Partition: 0, MaxWait: 100 * time.Millisecond, StartOffset: kafkago.FirstOffset,
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			m, err := reader.ReadMessage(t.Context())
			if err != nil {
				return
			}
			l := letter{key: string(m.Key), headers: map[string]string{}, body: string(m.Value)}
			for _, header := range m.Headers {
				l.headers[header.Key] = string(header.Value)
			}
			forward(t, to, l)
		}
	}()
	t.Cleanup(func() { _ = reader.Close(); <-ended })
	return to
}

type rabbitBroker struct {
	url, name string
	channel   *amqp.Channel
}

func newRabbit(t testing.TB) broker {
	b := &rabbitBroker{url: testenv.RabbitMQ(t), name: testenv.Name(t, "in")}
	conn, err := amqp.Dial(b.url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	b.channel, err = conn.Channel()
	require.NoError(t, err)
	require.NoError(t, b.channel.Confirm(false))
	for _, name := range topics {
		_, err := b.channel.QueueDeclare(b.topic(name), true, false, false, false, nil)
		require.NoError(t, err)
	}
	return b
}

func (b *rabbitBroker) sink() string             { return fmt.Sprintf(`{type: rabbitmq, url: %q}`, b.url) }
func (b *rabbitBroker) from() string             { return b.topic("commands") }
func (b *rabbitBroker) topic(name string) string { return b.name + "." + name }

func (b *rabbitBroker) publish(t testing.TB, letters ...letter) {
	t.Helper()
	var last *amqp.DeferredConfirmation
	for _, l := range letters {
		headers := amqp.Table{}
		for name, value := range l.headers {
			headers[name] = value
		}
		var err error
		last, err = b.channel.PublishWithDeferredConfirm("", b.topic("commands"), true, false, amqp.Publishing{
			MessageId: l.id, Headers: headers, Body: []byte(l.body), DeliveryMode: amqp.Persistent,
		})
		require.NoError(t, err)
	}
	require.True(t, last.Wait())
}

func (b *rabbitBroker) consume(t testing.TB, topic string) <-chan letter {
	to := make(chan letter)
	// The driver would cancel the consumer when the test ends, beside the end of the channel, and take one answer for the other.
	deliveries, err := b.channel.ConsumeWithContext(context.WithoutCancel(t.Context()), b.topic(topic), "", true, false, false, false, nil)
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for d := range deliveries {
			l := letter{id: d.MessageId, content: d.ContentType, headers: map[string]string{}, body: string(d.Body)}
			for name, value := range d.Headers {
				l.headers[name], _ = value.(string)
			}
			forward(t, to, l)
		}
	}()
	t.Cleanup(func() { _ = b.channel.Close(); <-ended })
	return to
}

type natsBroker struct {
	url, name string
	js        jetstream.JetStream
}

func newNATS(t testing.TB) broker {
	b := &natsBroker{url: testenv.NATS(t), name: testenv.Name(t, "in")}
	nc, err := nats.Connect(b.url)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	b.js, err = jetstream.New(nc)
	require.NoError(t, err)
	_, err = b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: b.name, Subjects: []string{b.name + ".>"}})
	require.NoError(t, err)
	return b
}

func (b *natsBroker) sink() string { return fmt.Sprintf(`{type: nats, url: %q}`, b.url) }

func (b *natsBroker) from() string {
	return fmt.Sprintf(`{stream: %s, subject: %s}`, b.name, b.topic("commands"))
}
func (b *natsBroker) topic(name string) string { return b.name + "." + name }

func (b *natsBroker) publish(t testing.TB, letters ...letter) {
	t.Helper()
	for _, l := range letters {
		m := nats.NewMsg(b.topic("commands"))
		m.Data = []byte(l.body)
		for name, value := range l.headers {
			m.Header[name] = []string{value}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := b.js.PublishMsg(ctx, m)
		cancel()
		require.NoError(t, err)
	}
}

func (b *natsBroker) consume(t testing.TB, topic string) <-chan letter {
	to := make(chan letter)
	consumer, err := b.js.OrderedConsumer(t.Context(), b.name, jetstream.OrderedConsumerConfig{FilterSubjects: []string{b.topic(topic)}})
	require.NoError(t, err)
	consuming, err := consumer.Consume(func(m jetstream.Msg) {
		l := letter{headers: map[string]string{}, body: string(m.Data())}
		for name, values := range m.Headers() {
			l.headers[name] = values[0]
		}
		forward(t, to, l)
	})
	require.NoError(t, err)
	t.Cleanup(consuming.Stop)
	return to
}
