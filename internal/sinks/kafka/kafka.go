// Package kafka is the sink that publishes to Apache Kafka, acknowledged by all
// in-sync replicas.
//
// A message's Topic is the Kafka topic and its Key the record key (null where
// it is empty); the partition is the one that Java's default partitioner would
// choose. What is published to one partition goes through its sender, which has
// at most one request at the broker at a time: that keeps order, and what
// arrives meanwhile shares the next request, so load makes requests larger
// rather than slower. A partition fails or hangs by itself: the senders of the
// others, and the calls to Publish that wait for those, do not notice.
//
// The package uses kafka-go's client for its encoding, and its own connections:
// kafka-go's transport cannot say whether a failed request had left, learns of a
// moved leader only by a random timer, asks for the metadata of all topics, and
// has goroutines that nobody can wait for. The sink never resends a message whose
// outcome is unknown, since kafka-go has no idempotent producer; a broker's error
// counts as a refusal only if Kafka cannot send it after the append.
package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/sinks"
)

// DefaultPublishTimeout is how long a request may make no progress.
const DefaultPublishTimeout = 10 * time.Second

// Sink publishes to one Kafka cluster. It owns one goroutine for each partition
// that has messages under way; it ends when there are none, and Close waits for it.
type Sink struct {
	config  Config
	logger  *slog.Logger
	brokers *brokers
	topics  *topics
	// open ends with Close, and with it every request.
	open context.Context //nolint:containedctx // it is the life of the sink, whose senders outlive any call
	end  context.CancelFunc
	// failures steers messages without a Key.
	failures failures

	mu      sync.Mutex
	senders map[partition]*sender
	closed  bool
	idle    chan struct{} // closed when the sink is closed and its last sender has ended
}

var _ sinks.Sink = (*Sink)(nil)

// New checks the configuration and returns a sink. It reads the TLS files, to
// check them, and connects to nothing.
func New(config Config, logger *slog.Logger) (*Sink, error) {
	if err := config.verify(); err != nil {
		return nil, err
	}
	if config.PublishTimeout == 0 {
		config.PublishTimeout = DefaultPublishTimeout
	}
	open, end := context.WithCancel(context.Background()) //nolint:forbidigo // the sink's own life, ended by Close
	pool := newBrokers(newOpener(config, logger))
	return &Sink{
		config:   config,
		logger:   logger,
		brokers:  pool,
		topics:   newTopics(pool, config.Brokers, logger),
		open:     open,
		end:      end,
		failures: failures{at: map[partition]time.Time{}},
		senders:  map[partition]*sender{},
		idle:     make(chan struct{}),
	}, nil
}

// Ping opens a connection of its own to one broker and logs in, so that a login
// which was revoked is noticed. It fails if no broker accepts.
func (s *Sink) Ping(ctx context.Context) error {
	ctx, cancel := s.untilClosed(ctx)
	defer cancel()
	var failures []error
	for _, address := range s.topics.addresses() {
		err := s.pingOne(ctx, address)
		if err == nil {
			return nil
		}
		failures = append(failures, err)
	}
	return fmt.Errorf("ping kafka: %w", errors.Join(failures...))
}

func (s *Sink) pingOne(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, s.config.askTimeout())
	defer cancel()
	conn, err := s.brokers.opener.open(ctx, address)
	if err != nil {
		return err
	}
	conn.close()
	return nil
}

// Close implements [sinks.Sink].
func (s *Sink) Close(ctx context.Context) error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		s.closeIfIdle()
	}
	s.mu.Unlock()
	s.end()
	defer s.brokers.close()
	select {
	case <-s.idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close kafka sink: wait for requests under way: %w", ctx.Err())
	}
}

// closeIfIdle lets Close return if nothing is under way. Callers hold s.mu.
func (s *Sink) closeIfIdle() {
	if s.closed && len(s.senders) == 0 {
		close(s.idle)
	}
}

// untilClosed returns a context that ends with ctx and with the sink.
func (s *Sink) untilClosed(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if s.open.Err() != nil {
		cancel() // At once: AfterFunc would do it in a goroutine, a little later.
	}
	stop := context.AfterFunc(s.open, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}
