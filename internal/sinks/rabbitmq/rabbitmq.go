// Package rabbitmq publishes messages to a RabbitMQ exchange: the topic is the
// routing key, and every message is persistent, mandatory and confirmed.
//
// A route is the exchange and the routing key, and what a route suffers stays
// with it: on each of the sink's connections every route has an AMQP channel of
// its own. RabbitMQ answers some mistakes by closing the channel, and holds a
// channel back whose queue does not keep up; neither reaches other routes. The
// first message on a channel, and one larger than all before, goes alone, so
// that a channel that closes over it tells exactly which one was refused.
//
// A full queue refuses a message and may take the next one. So of one Key and
// Topic at most one message is without an answer; all others are pipelined.
//
// A nack proves nothing: the broker only declines responsibility. The queue
// that has failed may have the message on its disk, and a full one may have
// siblings bound to the same key that took it. So a nacked message is Unknown.
//
// The driver logs in and keeps the connection; the frames of the channels are
// ours, see mux. The driver's own recovery is not used.
//
// The package declares nothing at the broker and changes none of its settings.
package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// Sink is a [sinks.Sink]. Its goroutines are those of its connections.
type Sink struct {
	config      Config
	connections *pool

	root    context.Context //nolint:containedctx // the sink's life, ended by Close
	stop    context.CancelCauseFunc
	mu      sync.Mutex
	closed  bool
	calls   sync.WaitGroup
	closing sync.Once
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
	s := &Sink{config: config, connections: newPool(config, endpoints, logger)}
	s.root, s.stop = context.WithCancelCause(context.Background()) //nolint:forbidigo // its own life, ended by Close
	return s, nil
}

// Route is [sinks.Sink.Route]: the exchange, a slash and the routing key; in the
// default exchange the routing key, which is the queue's name.
func (s *Sink) Route(m *message.Message) sinks.Route {
	if s.config.Exchange == "" {
		return sinks.Route(m.Topic)
	}
	return sinks.Route(s.config.Exchange + "/" + m.Topic)
}

// Publish is [sinks.Sink.Publish].
func (s *Sink) Publish(ctx context.Context, batch []message.Message, outcomes *sinks.Outcomes) {
	if len(batch) == 0 {
		return
	}
	if !s.enter() {
		outcomes.Rest(classify(notHanded, errClosed))
		return
	}
	defer s.calls.Done()
	ctx, cancel := s.bound(ctx)
	defer cancel()
	connection, err := s.connection(ctx)
	if err != nil {
		outcomes.Rest(classify(notHanded, err))
		return
	}
	connection.load.Add(int64(len(batch)))
	defer connection.load.Add(-int64(len(batch)))
	submission := newSubmission(connection, batch, outcomes)
	submission.begin(ctx)
	select {
	case <-outcomes.Done():
	case <-ctx.Done():
		submission.end(context.Cause(ctx))
		<-outcomes.Done()
	}
}

// connection returns one that takes messages. It waits for one to be dialled no
// longer than the publish timeout.
func (s *Sink) connection(ctx context.Context) (*connection, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.config.PublishTimeout, errNotConnected)
	defer cancel()
	return s.connections.get(ctx)
}

// Ping is [sinks.Sink.Ping]. It asks the broker over a connection that there is,
// or makes one.
func (s *Sink) Ping(ctx context.Context) error {
	if !s.enter() {
		return errClosed
	}
	defer s.calls.Done()
	ctx, cancel := s.bound(ctx)
	defer cancel()
	ctx, cancelTimeout := context.WithTimeoutCause(ctx, s.config.PublishTimeout, errSilent)
	defer cancelTimeout()
	if err := s.connections.ping(ctx); err != nil {
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
	})
	called := make(chan struct{})
	go func() {
		defer close(called)
		s.calls.Wait()
	}()
	err := s.connections.close(ctx)
	select {
	case <-called:
	case <-ctx.Done():
		err = errors.Join(err, ctx.Err())
	}
	if err != nil {
		return fmt.Errorf("close rabbitmq sink: %w", err)
	}
	return nil
}

// enter counts a call, which Close then waits for; false once the sink is closed.
func (s *Sink) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.calls.Add(1)
	return true
}

// bound ends ctx also when the sink closes.
func (s *Sink) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(s.root, func() { cancel(errClosed) })
	return ctx, func() {
		unhook()
		cancel(nil)
	}
}
