// Package nats publishes to NATS JetStream: subject = topic, into the stream
// that binds it.
//
// One connection carries everything, since more are not faster. It is never
// reconnected behind our back: when it ends, its unanswered messages are Unknown,
// and the next call dials a new one. So nothing waits in a buffer that outlives
// the answer to its caller.
//
// JetStream may refuse a message and store the next one, while a stream appears,
// elects or is full. So of each Key and Topic one message is without an answer at
// a time; messages of different Keys, and without one, are pipelined.
//
// A message counts as stored when JetStream says so in a publish ack of its
// own, nothing else. The package creates no stream and changes none.
package nats

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/redial"
)

// DefaultPublishTimeout is how long a publish may take where Config says nothing.
const DefaultPublishTimeout = 10 * time.Second

const (
	// pingTimeout bounds a Ping whose ctx allows more.
	pingTimeout = 5 * time.Second
	// redialInitial and redialLimit are the pauses between failed dials.
	redialInitial = 100 * time.Millisecond
	redialLimit   = 2 * time.Second
	// redialStable is how old a connection must get not to count as a failed dial.
	redialStable = time.Second
)

// errClosed is what a closed sink answers.
var errClosed = redial.ErrClosed

// Sink publishes to one NATS server or cluster. Its goroutines are those of the
// [redial.Redialer] and of the current connection; Close ends and awaits them.
type Sink struct {
	config     Config
	logger     *slog.Logger
	connection *redial.Redialer[*connection]
}

var _ sinks.Sink = (*Sink)(nil)

// New makes a sink. It checks the configuration and does no I/O: the first
// call connects.
func New(config Config, logger *slog.Logger) (*Sink, error) {
	if err := config.verify(); err != nil {
		return nil, err
	}
	if config.PublishTimeout == 0 {
		config.PublishTimeout = DefaultPublishTimeout
	}
	s := &Sink{config: config, logger: logger}
	s.connection = redial.New(redial.Config[*connection]{
		Broker: "NATS", Dial: s.dial, Initial: redialInitial, Limit: redialLimit, Stable: redialStable, Logger: logger,
	})
	return s, nil
}

// Route implements [sinks.Sink]: the subject, since only JetStream knows which
// stream binds it.
func (s *Sink) Route(m *message.Message) sinks.Route { return sinks.Route(m.Topic) }

// Ping implements [sinks.Sink]: the account answers that it has JetStream.
func (s *Sink) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	l, err := s.connection.Get(ctx, true)
	if err != nil {
		return err
	}
	return l.ping(ctx)
}

// Close implements [sinks.Sink].
func (s *Sink) Close(ctx context.Context) error {
	if err := s.connection.Close(ctx); err != nil {
		return fmt.Errorf("close NATS sink: %w", err)
	}
	return nil
}
