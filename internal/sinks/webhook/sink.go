// Package webhook posts messages to HTTP endpoints, signed as Standard Webhooks asks.
//
// A message's Topic is the name of an endpoint of the configuration: what producers choose is
// never an address, and redirects are not followed. Each message is a request of its own, and
// a status of 2xx acknowledges it. Each endpoint has connections of its own and is a route, so
// that one which hangs delays no other. Nothing is sent twice: where an answer is lost, the
// message is Unknown.
package webhook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// DefaultPublishTimeout is how long a publish may take where Config says nothing.
const DefaultPublishTimeout = 10 * time.Second

// pingTimeout bounds a Ping whose ctx allows more.
const pingTimeout = 5 * time.Second

var errClosed = errors.New("the sink is closed")

// Sink posts to the endpoints of one configuration. Its goroutines are those of the calls of
// Publish, which await them, and those of net/http, which end with their connections.
type Sink struct {
	timeout   time.Duration
	endpoints map[string]*endpoint
	root      context.Context //nolint:containedctx // the sink's life
	stop      context.CancelFunc

	mu    sync.Mutex     // keeps calls from beginning when root has ended
	calls sync.WaitGroup // of Publish
}

var _ sinks.Sink = (*Sink)(nil)

// New makes a sink. It reads the files of secrets, and connects to nothing.
func New(config Config, logger *slog.Logger) (*Sink, error) {
	if err := config.verify(); err != nil {
		return nil, err
	}
	s := &Sink{timeout: config.timeout(), endpoints: map[string]*endpoint{}}
	for _, name := range slices.Sorted(maps.Keys(config.Endpoints)) {
		e, err := newEndpoint(name, config, logger)
		if err != nil {
			return nil, fmt.Errorf("webhook sink: endpoints.%s: %w", name, err)
		}
		s.endpoints[name] = e
	}
	s.root, s.stop = context.WithCancel(context.Background()) //nolint:forbidigo // its own life, ended by Close
	return s, nil
}

// Route implements [sinks.Sink]: the endpoint.
func (s *Sink) Route(m *message.Message) sinks.Route { return sinks.Route(m.Topic) }

// Ping implements [sinks.Sink]: one endpoint that takes connections is enough. It sends no request.
func (s *Sink) Ping(ctx context.Context) error {
	ctx, end, err := s.within(ctx)
	if err != nil {
		return err
	}
	defer end()
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	answers := make(chan error, len(s.endpoints))
	var pinging sync.WaitGroup
	defer pinging.Wait()
	for _, e := range s.endpoints {
		pinging.Go(func() { answers <- e.ping(ctx) })
	}
	var errs []error
	for range s.endpoints {
		err := <-answers
		if err == nil {
			cancel()
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// within returns a context that also ends with the sink, whose Close waits for end.
func (s *Sink) within(ctx context.Context) (_ context.Context, end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.root.Err() != nil {
		return ctx, nil, errClosed
	}
	s.calls.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.root, func() { cancel(errClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
		s.calls.Done()
	}, nil
}

// Close implements [sinks.Sink].
func (s *Sink) Close(ctx context.Context) error {
	s.mu.Lock()
	s.stop()
	s.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.calls.Wait()
		for _, e := range s.endpoints {
			e.transport.CloseIdleConnections()
		}
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close webhook sink: %w", ctx.Err())
	}
}
