// Package rabbitmq publishes messages to a RabbitMQ exchange: the topic is the
// routing key, and every message is persistent, mandatory and confirmed.
//
// A sink holds a few connections, its lanes. All messages of one Key take the
// same lane, in order, so that several connections carry the load and the
// order of a Key holds. On a lane each delay queue has an AMQP channel of its
// own: RabbitMQ answers some mistakes by closing the channel, and a topic that
// never confirms fills the channel's window; neither reaches other queues. A
// message that might close its channel goes alone, over a second one.
//
// The package declares nothing at the broker and changes none of its settings.
// It does not use the driver's recovery, which leaves confirmations
// unresolved: a lane dials again when the next call needs it.
package rabbitmq

import (
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"math/rand/v2"
	"sync"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// channelsMax bounds the channels of a lane, two for each delay queue. Further
// queues share them.
const channelsMax = 256

// Sink is a [sinks.Sink]. It owns one dialling goroutine a lane at the most,
// and three goroutines a connection (watch, write, and the driver's), all of
// which end with Close.
type Sink struct {
	config    Config
	endpoints []endpoint
	logger    *slog.Logger
	seed      maphash.Seed
	lanes     []*lane

	root    context.Context // ends with Close
	stop    context.CancelCauseFunc
	closing sync.Once
	work    sync.WaitGroup // calls and goroutines

	mu       sync.Mutex
	closed   bool
	channels map[string]int // delay queue -> its channel
}

var _ sinks.Sink = (*Sink)(nil)

// New checks the configuration and returns a sink that connects when it is
// first used.
func New(config Config, logger *slog.Logger) (*Sink, error) {
	config = config.withDefaults()
	endpoints, err := config.check()
	if err != nil {
		return nil, fmt.Errorf("rabbitmq sink: %w", err)
	}
	rand.Shuffle(len(endpoints), func(i, j int) { endpoints[i], endpoints[j] = endpoints[j], endpoints[i] })
	s := &Sink{
		config: config, endpoints: endpoints,
		logger:   logger,
		seed:     maphash.MakeSeed(),
		channels: map[string]int{},
	}
	s.root, s.stop = context.WithCancelCause(context.Background()) //nolint:forbidigo // the life of the sink, ended by Close
	for i := range config.Connections {
		s.lanes = append(s.lanes, &lane{sink: s, number: i, next: i})
	}
	return s, nil
}

// Publish is [sinks.Sink.Publish].
func (s *Sink) Publish(ctx context.Context, batch []message.Message, outcomes *sinks.Outcomes) {
	for i, outcome := range s.publish(ctx, batch) {
		outcomes.Report(i, outcome)
	}
}

// Route is [sinks.Sink.Route].
func (s *Sink) Route(m *message.Message) sinks.Route { return sinks.Route(m.Topic) }

func (s *Sink) publish(ctx context.Context, batch []message.Message) []sinks.Outcome {
	outcomes := make([]sinks.Outcome, len(batch))
	if len(batch) == 0 {
		return outcomes
	}
	if !s.enter() {
		sinks.Fill(outcomes, classify(notHanded, errClosed))
		return outcomes
	}
	defer s.work.Done()
	ctx, cancel := s.bound(ctx)
	defer cancel()

	channel := s.channelOf(batch[0].Queue)
	var parts sync.WaitGroup
	for number, indices := range s.split(batch) {
		if len(indices) == 0 {
			continue
		}
		parts.Go(func() {
			s.lanes[number].publish(ctx, channel, &part{batch, indices, outcomes})
		})
	}
	parts.Wait()
	return outcomes
}

// split returns the indices of the messages for each lane, in order.
func (s *Sink) split(batch []message.Message) [][]int {
	parts := make([][]int, len(s.lanes))
	for i := range batch {
		key := batch[i].Key
		if key == "" {
			key = batch[i].ID
		}
		number := maphash.String(s.seed, key) % uint64(len(s.lanes))
		parts[number] = append(parts[number], i)
	}
	return parts
}

// channelOf numbers the delay queues as they come, so that the first
// channelsMax have channels of their own.
func (s *Sink) channelOf(queue string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	channel, ok := s.channels[queue]
	switch {
	case ok:
	case len(s.channels) < channelsMax:
		channel = len(s.channels)
		s.channels[queue] = channel
	default:
		channel = int(maphash.String(s.seed, queue) % channelsMax)
	}
	return channel
}

// Ping is [sinks.Sink.Ping]. It asks the broker of the first lane that is
// connected, or connects one.
func (s *Sink) Ping(ctx context.Context) error {
	if !s.enter() {
		return errClosed
	}
	defer s.work.Done()
	ctx, cancel := s.bound(ctx)
	defer cancel()
	asked := s.lanes[0]
	for _, l := range s.lanes {
		if l.connected() {
			asked = l
			break
		}
	}
	session, err := asked.connect(ctx)
	if err != nil {
		return fmt.Errorf("ping rabbitmq: %w", err)
	}
	if err := session.ping(ctx); err != nil {
		return fmt.Errorf("ping rabbitmq: %w", err)
	}
	return nil
}

// Close is [sinks.Sink.Close].
func (s *Sink) Close(ctx context.Context) error {
	s.closing.Do(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		s.stop(errClosed)
		for _, l := range s.lanes {
			l.close()
		}
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.work.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close rabbitmq sink: %w", ctx.Err())
	}
}

// enter counts a call or a goroutine, which Close then waits for; false once
// the sink is closed.
func (s *Sink) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.work.Add(1)
	return true
}

// bound ends ctx also after the publish timeout and when the sink closes.
func (s *Sink) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, s.config.PublishTimeout)
	ctx, cancelCause := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(s.root, func() { cancelCause(errClosed) })
	return ctx, func() {
		unhook()
		cancelCause(nil)
		cancel()
	}
}
