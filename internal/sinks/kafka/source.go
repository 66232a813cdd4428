package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/delaybridge/delaybridge/internal/sinks/source"
)

const (
	// newPartitions is how many the topics get that we make, and so how many
	// bridges may share the work.
	newPartitions = 4
	// sessionTimeout is after what time a silent bridge's partitions go to others.
	sessionTimeout = 6 * time.Second // The least that brokers take by default.
	heartbeat      = 2 * time.Second
	fetchWait      = time.Second
	fetchBytes     = 25 << 20
	// joinBackoff is the pause before the group is joined again.
	joinBackoff = 500 * time.Millisecond
	// gather is how long a batch waits for messages that were already fetched.
	gather = 5 * time.Millisecond
)

// compensations are the messages of one topic: a consumer group that commits what was
// handled. A topic that is missing is made with 4 partitions and the broker's default of replicas.
type compensations struct {
	config Config
	source.Options
}

// Source implements [kind.Settings].
func (c Config) Source(options source.Options) (source.Source, error) {
	if err := options.Check(); err != nil {
		return nil, err
	}
	if _, err := c.Dialer(); err != nil {
		return nil, err
	}
	return &compensations{config: c, Options: options}, nil
}

// Run implements [source.Source].
func (s *compensations) Run(ctx context.Context, handle source.Handler) {
	source.Reconnect(ctx, &s.Options, func(ctx context.Context) error { return s.session(ctx, handle) })
}

func (s *compensations) session(ctx context.Context, handle source.Handler) (err error) {
	dialer, err := s.config.Dialer() // Rotated files are read.
	if err != nil {
		return err
	}
	if err := CreateTopics(ctx, s.config, s.Logger, newPartitions, s.Topic, source.DeadTopic(s.Topic)); err != nil {
		return err
	}
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: s.config.Brokers, GroupID: s.Group, Topic: s.Topic, Dialer: dialer,
		StartOffset: kafka.FirstOffset, QueueCapacity: source.BatchMax,
		MinBytes: 1, MaxBytes: fetchBytes, MaxWait: fetchWait,
		HeartbeatInterval: heartbeat, SessionTimeout: sessionTimeout, RebalanceTimeout: sessionTimeout,
		JoinGroupBackoff: joinBackoff, WatchPartitionChanges: true,
		ErrorLogger: kafka.LoggerFunc(func(format string, args ...any) {
			s.Logger.LogAttrs(ctx, slog.LevelDebug, "kafka reader: "+fmt.Sprintf(format, args...), slog.String("topic", s.Topic))
		}),
	})
	defer func() { err = errors.Join(err, reader.Close()) }()
	s.Connected(ctx)
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
		if err := source.Attend(ctx, deliveries, handle, done); err != nil {
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

// generation finds the messages that another member of the group may have handled:
// Kafka does not. They are those that a partition held when it came to us.
type generation struct {
	reader *kafka.Reader
	before map[int]int64 // partition -> the end that it had then
}

// fetch waits for one message and takes those with it that are here already.
func (g *generation) fetch(ctx context.Context) ([]kafka.Message, []*source.Delivery, error) {
	m, err := g.reader.FetchMessage(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("fetch: %w", err)
	}
	batch := []kafka.Message{m}
	soon, cancel := context.WithTimeout(ctx, gather)
	defer cancel()
	for len(batch) < source.BatchMax {
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
	deliveries := make([]*source.Delivery, len(batch))
	for i, m := range batch {
		end, known := g.before[m.Partition]
		if !known {
			end = m.HighWaterMark
			g.before[m.Partition] = end
		}
		deliveries[i] = &source.Delivery{Body: m.Value, Redelivered: m.Offset < end}
	}
	return batch, deliveries, nil
}
