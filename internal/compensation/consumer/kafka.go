package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/segmentio/kafka-go"

	kafkasink "github.com/delaybridge/delaybridge/internal/sinks/kafka"
)

const (
	// kafkaPartitions is how many the topics get that we make, and so how many
	// bridges may share the work.
	kafkaPartitions = 4
	// kafkaSession is after what time a silent bridge's partitions go to others.
	kafkaSession   = 6 * time.Second // The least that brokers take by default.
	kafkaHeartbeat = 2 * time.Second
	kafkaMaxWait   = time.Second
	kafkaMaxBytes  = 25 << 20
	// gather is how long a batch waits for what has been fetched already.
	gather = 5 * time.Millisecond
)

// Kafka is a [Source]: a consumer group that commits what was handled. A topic
// that is missing is made with 4 partitions and the broker's default of replicas.
type Kafka struct {
	config kafkasink.Config
	Options
}

// NewKafka checks the configuration; it does no I/O but reading TLS files.
func NewKafka(config kafkasink.Config, options Options) (*Kafka, error) {
	if err := options.check(); err != nil {
		return nil, err
	}
	if _, err := config.Dialer(); err != nil {
		return nil, err
	}
	return &Kafka{config: config, Options: options}, nil
}

// Run implements [Source].
func (k *Kafka) Run(ctx context.Context, handle Handler) {
	reconnect(ctx, &k.Options, func(ctx context.Context) error { return k.session(ctx, handle) })
}

func (k *Kafka) session(ctx context.Context, handle Handler) (err error) {
	dialer, err := k.config.Dialer() // Rotated files are read.
	if err != nil {
		return err
	}
	if err := kafkasink.CreateTopics(ctx, k.config, k.Logger, kafkaPartitions, k.Topic, DeadTopic(k.Topic)); err != nil {
		return err
	}
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: k.config.Brokers, GroupID: k.Group, Topic: k.Topic, Dialer: dialer,
		StartOffset: kafka.FirstOffset, QueueCapacity: batchMax,
		MinBytes: 1, MaxBytes: kafkaMaxBytes, MaxWait: kafkaMaxWait,
		HeartbeatInterval: kafkaHeartbeat, SessionTimeout: kafkaSession, RebalanceTimeout: kafkaSession,
		JoinGroupBackoff: longDial / 4, WatchPartitionChanges: true,
		ErrorLogger: kafka.LoggerFunc(func(format string, args ...any) {
			k.Logger.LogAttrs(ctx, slog.LevelDebug, "kafka reader: "+fmt.Sprintf(format, args...), slog.String("topic", k.Topic))
		}),
	})
	defer func() { err = errors.Join(err, reader.Close()) }()
	k.connected(ctx)
	seen := generation{reader: reader}
	for {
		batch, deliveries, err := seen.fetch(ctx)
		if err != nil {
			return err
		}
		handled := make([]bool, len(batch))
		done := func(ctx context.Context, indices []int) error {
			for _, i := range indices {
				handled[i] = true
			}
			return commit(ctx, reader, batch, handled)
		}
		if err := attend(ctx, deliveries, handle, done); err != nil {
			return err
		}
	}
}

// commit commits, in each partition, what is handled up to the first message
// that is not.
func commit(ctx context.Context, reader *kafka.Reader, batch []kafka.Message, handled []bool) error {
	stopped := map[int]bool{}
	var ready []kafka.Message
	for i, m := range batch {
		if !handled[i] {
			stopped[m.Partition] = true
		}
		if !stopped[m.Partition] {
			ready = append(ready, m)
		}
	}
	if len(ready) == 0 {
		return nil
	}
	if err := reader.CommitMessages(ctx, ready...); err != nil {
		return fmt.Errorf("commit offsets: %w", err)
	}
	return nil
}

// generation tells which messages another member of the group may have handled:
// Kafka does not. They are those that a partition held when it came to us.
type generation struct {
	reader *kafka.Reader
	before map[int]int64 // partition -> the end that it had then
}

// fetch waits for one message and takes those with it that are here already.
func (g *generation) fetch(ctx context.Context) ([]kafka.Message, []*Delivery, error) {
	m, err := g.reader.FetchMessage(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("fetch: %w", err)
	}
	batch := []kafka.Message{m}
	soon, cancel := context.WithTimeout(ctx, gather)
	defer cancel()
	for len(batch) < batchMax {
		m, err := g.reader.FetchMessage(soon)
		if err != nil {
			break // A lasting error comes again.
		}
		batch = append(batch, m)
	}
	// The reader counts a generation before it fetches in it.
	if changed := g.reader.Stats().Rebalances > 0; changed || g.before == nil {
		g.before = map[int]int64{}
	}
	deliveries := make([]*Delivery, len(batch))
	for i, m := range batch {
		end, known := g.before[m.Partition]
		if !known {
			end = m.HighWaterMark
			g.before[m.Partition] = end
		}
		deliveries[i] = &Delivery{Body: m.Value, Redelivered: m.Offset < end}
	}
	return batch, deliveries, nil
}
