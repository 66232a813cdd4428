// Package redis publishes to Redis Streams, by an XADD to the stream that has the topic's name.
//
// Commands go out in pipelines, a few at a time, each on a connection of its own. A
// pipeline holds one message of each Key and Topic, since Redis may refuse one command
// and run the next. Nothing is sent twice: if an answer is lost, the message is Unknown.
// In a Cluster the client redirects a command that was refused because its slot is
// elsewhere.
//
// A message counts as stored when Redis has answered with the entry's ID. That is as
// durable as this Redis is. The package creates no stream, and trims none.
package redis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// DefaultPublishTimeout is how long a publish may take where Config says nothing.
const DefaultPublishTimeout = 10 * time.Second

// pingTimeout bounds a Ping whose ctx allows more.
const pingTimeout = 5 * time.Second

var errClosed = errors.New("the sink is closed")

// Sink publishes to one Redis, standalone, behind Sentinels or a Cluster. Its goroutines
// are those of the senders, which end when nothing waits; Close awaits them.
type Sink struct {
	client    goredis.UniversalClient
	isCluster bool
	timeout   time.Duration
	root      context.Context //nolint:containedctx // the sink's life
	stop      context.CancelFunc
	senders   sync.WaitGroup

	mu     sync.Mutex
	queues map[string]*queue // by name
	limits map[string]limit  // by the server's address
}

var _ sinks.Sink = (*Sink)(nil)

// New makes a sink of a client whose options [Tune] has set for the same timeout. The
// sink owns the client: Close closes it. New does no I/O.
func New(client goredis.UniversalClient, config Config) *Sink {
	s := &Sink{client: client, timeout: config.timeout(), queues: map[string]*queue{}, limits: map[string]limit{}}
	_, s.isCluster = client.(*goredis.ClusterClient)
	s.root, s.stop = context.WithCancel(context.Background()) //nolint:forbidigo // its own life, ended by Close
	return s
}

// Route implements [sinks.Sink]: the stream. Which node of a Cluster holds it is not known
// without asking.
func (s *Sink) Route(m *message.Message) sinks.Route { return sinks.Route(m.Topic) }

// Ping implements [sinks.Sink].
func (s *Sink) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if err := s.client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("ping Redis: %w", err)
	}
	return nil
}

// Close implements [sinks.Sink].
func (s *Sink) Close(ctx context.Context) error {
	s.mu.Lock()
	s.stop()
	s.mu.Unlock()
	err := s.client.Close()
	if errors.Is(err, goredis.ErrClosed) {
		err = nil // It was closed before.
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.senders.Wait()
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		err = errors.Join(err, ctx.Err())
	}
	if err != nil {
		return fmt.Errorf("close Redis sink: %w", err)
	}
	return nil
}
