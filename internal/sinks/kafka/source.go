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
	// mostFetched is how many messages the reader holds that no batch has yet.
	mostFetched = 256
	// gather is how long a batch waits for messages that were already fetched.
	gather = 5 * time.Millisecond
)

// consumed are the messages of one topic: a consumer group that commits what was
// handled. A topic of compensations that is missing is made with 4 partitions and the broker's
// default of replicas.
type consumed struct {
	config Config
	source.Options
}

// Source implements [kind.Consumed].
func (c Config) Source(options source.Options) (source.Source, error) {
	if err := options.Check(); err != nil {
		return nil, err
	}
	if _, err := c.Dialer(); err != nil {
		return nil, err
	}
	return &consumed{config: c, Options: options}, nil
}

// Run implements [source.Source].
func (s *consumed) Run(ctx context.Context, handle source.Handler) {
	source.Reconnect(ctx, &s.Options, func(ctx context.Context) error { return s.session(ctx, handle) })
}

func (s *consumed) session(ctx context.Context, handle source.Handler) (err error) {
	dialer, err := s.config.Dialer() // Rotated files are read.
	if err != nil {
		return err
	}
	if err := s.setUp(ctx); err != nil {
		return err
	}
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: s.config.Brokers, GroupID: s.Group, Topic: s.Topic, Dialer: dialer,
		StartOffset: kafka.FirstOffset, QueueCapacity: min(s.BatchOr(), mostFetched),
		MinBytes: 1, MaxBytes: fetchBytes, MaxWait: fetchWait,
		HeartbeatInterval: heartbeat, SessionTimeout: sessionTimeout, RebalanceTimeout: sessionTimeout,
		JoinGroupBackoff: joinBackoff, WatchPartitionChanges: true,
		ErrorLogger: kafka.LoggerFunc(func(format string, args ...any) {
			s.Logger.LogAttrs(ctx, slog.LevelDebug, "kafka reader: "+fmt.Sprintf(format, args...), slog.String("topic", s.Topic))
		}),
	})
	defer func() { err = errors.Join(err, reader.Close()) }()
	s.Connected(ctx)
	seen := generation{reader: reader, options: &s.Options, waits: map[int]int64{}}
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

// setUp makes the topics of compensations, and looks for that of an inlet.
func (s *consumed) setUp(ctx context.Context) error {
	if s.Inlet == "" {
		return CreateTopics(ctx, s.config, s.Logger, newPartitions, s.Topic, source.DeadTopic(s.Topic))
	}
	return findTopic(ctx, s.config, s.Logger, s.Topic)
}

// Find implements [source.Finder]. A broker that denies reading hides the topic; one that denies
// the group says so.
func (s *consumed) Find(ctx context.Context) error {
	if err := findTopic(ctx, s.config, s.Logger, s.Topic); err != nil {
		return err
	}
	return findGroup(ctx, s.config, s.Logger, s.Group, s.Topic)
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

	options *source.Options
	waits   map[int]int64 // partition -> how many messages are behind what was fetched
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
	for bytes := len(m.Value); len(batch) < g.options.BatchOr() && bytes < fetchBytes; {
		m, err := g.reader.FetchMessage(soon)
		if err != nil {
			break // A lasting error comes again.
		}
		batch, bytes = append(batch, m), bytes+len(m.Value)
	}
	// The reader counts a generation before it fetches in it.
	if changed := g.reader.Stats().Rebalances > 0; changed || g.before == nil {
		g.before = map[int]int64{}
		clear(g.waits)
	}
	deliveries := make([]*source.Delivery, len(batch))
	for i, m := range batch {
		end, known := g.before[m.Partition]
		if !known {
			end = m.HighWaterMark
			g.before[m.Partition] = end
		}
		deliveries[i] = &source.Delivery{Body: m.Value, Redelivered: m.Offset < end}
		if g.options.Inlet != "" {
			deliveries[i].Origin = originOf(&m)
		}
		g.waits[m.Partition] = m.HighWaterMark - m.Offset - 1
	}
	sum := int64(0)
	for _, n := range g.waits {
		sum += n
	}
	g.options.TellWaits(sum)
	return batch, deliveries, nil
}

// originOf names a record by its time, too: a topic that is made again begins at the first offset.
func originOf(m *kafka.Message) source.Origin {
	o := source.Origin{Position: fmt.Sprintf("%s/%d/%d@%d", m.Topic, m.Partition, m.Offset, m.Time.UnixMilli()), Key: string(m.Key), At: m.Time}
	for _, header := range m.Headers {
		o.Add(header.Key, string(header.Value))
	}
	return o
}
