package trial

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
)

const partitions = 6

type kafkaBroker struct{ server *service.Server }

func startKafka(ctx context.Context, properties string) (Broker, error) {
	server, err := service.StartKafka(ctx, properties)
	return kafkaBroker{server}, err
}

// dial goes to the one broker there is, whatever it advertises.
func (b kafkaBroker) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, b.server.Addr())
}

func (b kafkaBroker) Name() string            { return "kafka" }
func (b kafkaBroker) Server() *service.Server { return b.server }
func (b kafkaBroker) SinkConfig() string {
	return fmt.Sprintf(`{type: kafka, brokers: [%q]}`, b.server.Addr())
}

func (b kafkaBroker) client() (*kafkago.Client, func()) {
	transport := &kafkago.Transport{MetadataTTL: 10 * time.Second, Dial: b.dial}
	address, _ := net.ResolveTCPAddr("tcp", b.server.Addr())
	return &kafkago.Client{Addr: address, Timeout: 20 * time.Second, Transport: transport}, transport.CloseIdleConnections
}

func (b kafkaBroker) MakeTopic(ctx context.Context, topic string) error {
	return b.makeTopic(ctx, topic, 1)
}

// makeTopic gives each partition a replica on each of the nodes. It asks the first
// node itself: the one that calls itself the controller may be a follower that is
// paused.
func (b kafkaBroker) makeTopic(ctx context.Context, topic string, nodes ...int) error {
	assigned := make([]kafkago.ReplicaAssignment, partitions)
	for i := range assigned {
		assigned[i] = kafkago.ReplicaAssignment{Partition: i, Replicas: nodes}
	}
	conn, err := kafkago.DialContext(ctx, "tcp", b.server.Addr())
	if err != nil {
		return err
	}
	err = conn.SetDeadline(time.Now().Add(20 * time.Second))
	return errors.Join(err, conn.CreateTopics(kafkago.TopicConfig{
		Topic: topic, NumPartitions: -1, ReplicationFactor: -1, ReplicaAssignments: assigned,
		ConfigEntries: []kafkago.ConfigEntry{{ConfigName: "message.timestamp.type", ConfigValue: "LogAppendTime"}},
	}), awaitTopic(ctx, conn, topic), conn.Close())
}

// awaitTopic waits until the node knows the topic: it shows it to clients a moment
// after it has made it.
func awaitTopic(ctx context.Context, conn *kafkago.Conn, topic string) error {
	for {
		found, err := conn.ReadPartitions(topic)
		if err == nil && len(found) == partitions {
			return nil
		}
		if err != nil && !errors.Is(err, kafkago.UnknownTopicOrPartition) && !errors.Is(err, kafkago.LeaderNotAvailable) {
			return err
		}
		if err := Sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

func (b kafkaBroker) Consume(ctx context.Context, topic string, each func(Record)) error {
	var group errgroup.Group
	records := make(chan Record, 1000)
	for partition := range partitions {
		group.Go(func() error { return b.consume(ctx, topic, partition, records) })
	}
	done := make(chan error, 1)
	go func() { done <- group.Wait(); close(records) }()
	for record := range records {
		each(record)
	}
	return <-done
}

func (b kafkaBroker) consume(ctx context.Context, topic string, partition int, records chan<- Record) error {
	reader := kafkago.NewReader(kafkago.ReaderConfig{
		Brokers: []string{b.server.Addr()}, Topic: topic, Partition: partition, MinBytes: 1, MaxBytes: 10e6,
		MaxWait: 100 * time.Millisecond, ReadBackoffMin: 5 * time.Millisecond, ReadBackoffMax: 100 * time.Millisecond,
		Dialer: &kafkago.Dialer{Timeout: 10 * time.Second, DialFunc: b.dial},
	})
	defer func() { _ = reader.Close() }()
	for {
		m, err := reader.ReadMessage(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			continue // A broker that is down is what some runs are about.
		}
		record := Record{Key: string(m.Key), Headers: map[string]string{}, Body: m.Value, At: m.Time}
		for _, header := range m.Headers {
			record.Headers[header.Key] = string(header.Value)
		}
		record.ID = record.Headers["delay-id"]
		records <- record
	}
}

func (b kafkaBroker) Stored(ctx context.Context, topic string) (int64, error) {
	client, done := b.client()
	defer done()
	var requests []kafkago.OffsetRequest
	for partition := range partitions {
		requests = append(requests, kafkago.FirstOffsetOf(partition), kafkago.LastOffsetOf(partition))
	}
	response, err := client.ListOffsets(ctx, &kafkago.ListOffsetsRequest{
		Topics: map[string][]kafkago.OffsetRequest{topic: requests},
	})
	if err != nil {
		return 0, err
	}
	var stored int64
	for _, offsets := range response.Topics[topic] {
		err = errors.Join(err, offsets.Error)
		stored += offsets.LastOffset - offsets.FirstOffset
	}
	return stored, err
}

func (b kafkaBroker) Publisher(limit time.Duration) (publish outbox.Publisher, end func(), err error) {
	transport := &kafkago.Transport{Dial: b.dial}
	writer := &kafkago.Writer{
		Addr: kafkago.TCP(b.server.Addr()), Balancer: &kafkago.Hash{}, RequiredAcks: kafkago.RequireAll,
		BatchTimeout: 5 * time.Millisecond, Transport: transport, WriteTimeout: limit, ReadTimeout: limit, MaxAttempts: 1, // A second one may be a second record.
	}
	return func(ctx context.Context, topic string, headers map[string]string, body []byte) error {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		m := kafkago.Message{Topic: topic, Value: body}
		for name, value := range headers {
			m.Headers = append(m.Headers, kafkago.Header{Key: name, Value: []byte(value)})
		}
		if key := headers["delay-key"]; key != "" { // For an inlet.
			m.Key = []byte(key)
		}
		return writer.WriteMessages(ctx, m)
	}, func() { _ = writer.Close(); transport.CloseIdleConnections() }, nil
}
