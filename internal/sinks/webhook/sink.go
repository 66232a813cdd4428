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
	"github.com/delaybridge/delaybridge/internal/sinks/overhttp"
)

// DefaultPublishTimeout is how long a publish may take where Config says nothing.
const DefaultPublishTimeout = 10 * time.Second

// pingTimeout bounds a Ping whose ctx allows more.
const pingTimeout = 5 * time.Second

// Sink posts to the endpoints of one configuration. Its goroutines are those of the calls of
// Publish, which await them, and those of net/http, which end with their connections.
type Sink struct {
	timeout   time.Duration
	endpoints map[string]*endpoint
	calls     *overhttp.Calls
}

var _ sinks.Sink = (*Sink)(nil)

// New makes a sink. It reads the files of secrets, and connects to nothing.
func New(config Config, logger *slog.Logger) (*Sink, error) {
	if err := config.verify(); err != nil {
		return nil, err
	}
	s := &Sink{timeout: config.timeout(), endpoints: map[string]*endpoint{}, calls: overhttp.NewCalls()}
	for _, name := range slices.Sorted(maps.Keys(config.Endpoints)) {
		e, err := newEndpoint(name, config, logger)
		if err != nil {
			return nil, fmt.Errorf("webhook sink: endpoints.%s: %w", name, err)
		}
		s.endpoints[name] = e
	}
	return s, nil
}

// Route implements [sinks.Sink]: the endpoint.
func (s *Sink) Route(m *message.Message) sinks.Route { return sinks.Route(m.Topic) }

// Ping implements [sinks.Sink]: one endpoint that takes connections is enough. It sends no request.
func (s *Sink) Ping(ctx context.Context) error {
	ctx, end, err := s.calls.Begin(ctx)
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

// Close implements [sinks.Sink].
func (s *Sink) Close(ctx context.Context) error {
	err := s.calls.Close(ctx, func() {
		for _, e := range s.endpoints {
			e.client.Transport.CloseIdleConnections()
		}
	})
	if err != nil {
		return fmt.Errorf("close webhook sink: %w", err)
	}
	return nil
}
