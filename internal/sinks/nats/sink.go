// Package nats publishes to NATS JetStream: subject = topic, into the stream
// that binds it.
//
// One connection carries everything, since more are not faster, and one
// connection keeps the order. It is never reconnected behind our back: when it
// ends, its unanswered messages are Unknown, and the next call dials a new one.
// So nothing waits in a buffer that outlives the answer to its caller.
//
// A message counts as stored when JetStream says so in a publish ack of its
// own, nothing else. The package creates no stream and changes none.
package nats

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// DefaultPublishTimeout is how long a publish may take where Config says nothing.
const DefaultPublishTimeout = 10 * time.Second

// pingTimeout bounds a Ping whose ctx allows more.
const pingTimeout = 5 * time.Second

// errClosed is what a closed sink answers.
var errClosed = errors.New("sink is closed")

// Sink publishes to one NATS server or cluster. Its only goroutines are one
// that dials, bounded by a timeout, and those of the current connection; Close
// ends and awaits them.
type Sink struct {
	config Config
	logger *slog.Logger
	root   context.Context //nolint:containedctx // ends with the sink; dialling and sockets hang on it
	cancel context.CancelFunc

	mu      sync.Mutex
	closed  bool
	current *link         // nil, or the last connection, which may be down
	dialing chan struct{} // nil, or closed when the running attempt ends
	dialErr error         // of the last attempt, nil if it succeeded
	failed  int           // attempts that failed in a row
	retryAt time.Time     // no attempt before, but for Ping
}

var _ sinks.Sink = (*Sink)(nil)

// New makes a sink. It checks the configuration and does no I/O: the first
// call connects.
func New(config Config, logger *slog.Logger) (*Sink, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	if config.PublishTimeout == 0 {
		config.PublishTimeout = DefaultPublishTimeout
	}
	root, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // the sink's own life, ended by Close
	return &Sink{config: config, logger: logger, root: root, cancel: cancel}, nil
}

// Publish implements [sinks.Sink].
func (s *Sink) Publish(ctx context.Context, batch []message.Message, outcomes *sinks.Outcomes) {
	for i, outcome := range s.publish(ctx, batch) {
		outcomes.Report(i, outcome)
	}
}

// Route implements [sinks.Sink].
func (s *Sink) Route(m *message.Message) sinks.Route { return sinks.Route(m.Topic) }

func (s *Sink) publish(ctx context.Context, batch []message.Message) []sinks.Outcome {
	f := newFlight(batch)
	if len(batch) == 0 {
		return f.outcomes
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.PublishTimeout)
	defer cancel()
	f.refuseInvalid()
	l, err := s.link(ctx, false)
	if err != nil {
		return f.end(err)
	}
	return l.publish(ctx, f)
}

// Ping implements [sinks.Sink]: the account answers that it has JetStream.
func (s *Sink) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	l, err := s.link(ctx, true)
	if err != nil {
		return err
	}
	return l.ping(ctx)
}

// Close implements [sinks.Sink].
func (s *Sink) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	dialing := s.dialing
	s.mu.Unlock()
	s.cancel() // breaks off dialling and closes the socket
	if dialing != nil {
		select {
		case <-dialing:
		case <-ctx.Done():
			return fmt.Errorf("close NATS connection: %w", ctx.Err())
		}
	}
	s.mu.Lock()
	l := s.current
	s.mu.Unlock()
	if l == nil {
		return nil
	}
	return l.close(ctx)
}
