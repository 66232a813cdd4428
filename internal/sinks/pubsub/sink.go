// Package pubsub publishes to topics of Google Cloud Pub/Sub, by its REST API.
//
// A request has up to 1,000 messages and 32 KiB, and Pub/Sub takes all of it or nothing. Of a Key one request
// is under way, with as many of its messages as fit, whose order Pub/Sub keeps. Each topic is a
// route with slots of its own, so that one which hangs delays no other. Nothing is sent twice:
// where an answer is lost, the messages are Unknown.
//
// REST, and not Google's client: docs/decisions/090-pubsub-by-rest.md.
package pubsub

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/overhttp"
)

// DefaultPublishTimeout is how long a publish may take where Config says nothing.
const DefaultPublishTimeout = 10 * time.Second

const (
	// pingTimeout bounds a Ping whose ctx allows more.
	pingTimeout = 5 * time.Second
	// answerMost bounds the body of an answer.
	answerMost = 1 << 20
)

// Sink publishes to the topics of one project. Its goroutines are those of the calls of Publish,
// which await them, and those of net/http, which end with their connections.
type Sink struct {
	config Config
	login  *login // nil of an emulator
	http   overhttp.Client
	calls  *overhttp.Calls
	topics *overhttp.Routes[*overhttp.Slots]
}

var _ sinks.Sink = (*Sink)(nil)

// New makes a sink. It reads and connects to nothing.
func New(config Config) (*Sink, error) {
	if err := config.verify(); err != nil {
		return nil, err
	}
	s := &Sink{
		config: config, http: overhttp.ServiceClient(config.files()), calls: overhttp.NewCalls(),
		topics: overhttp.NewRoutes(func(string) *overhttp.Slots { return overhttp.NewSlots(config.requests(), refuse) }),
	}
	if !config.isPlain() {
		s.login = newLogin(config.CredentialsFile)
	}
	return s, nil
}

// Route implements [sinks.Sink]: the topic.
func (s *Sink) Route(m *message.Message) sinks.Route { return sinks.Route(m.Topic) }

// unknownTopic is what Ping asks for.
const unknownTopic = "delaybridge"

// Ping implements [sinks.Sink]. It asks for a topic: also that there is none, or that we may not
// see it, says that Pub/Sub has accepted the login.
func (s *Sink) Ping(ctx context.Context) error {
	ctx, end, err := s.calls.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if _, err := s.call(ctx, http.MethodGet, s.config.topicPath(unknownTopic), nil, nil); err != nil && !isOfTopic(err) {
		return fmt.Errorf("ping Pub/Sub: %w", err)
	}
	return nil
}

// call makes one request and reads its answer, of which the error is an [answerError] unless the status is 200. how is
// how far the request came.
func (s *Sink) call(ctx context.Context, method, path string, body []byte, answer any) (how overhttp.Sent, err error) {
	ctx, attempt := overhttp.Begin(ctx, s.config.timeout())
	defer attempt.End()
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	request, err := http.NewRequestWithContext(ctx, method, s.config.base()+path, reader)
	if err != nil {
		return overhttp.Unsent, err
	}
	request.Header.Set("Content-Type", "application/json")
	if s.login != nil {
		token, err := s.login.token(ctx)
		if err != nil {
			return overhttp.Unsent, err
		}
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := s.http.Do(request)
	if err != nil {
		return attempt.Sent(), overhttp.Explain(ctx, s.config.files(), err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, answerMost))
	if err != nil {
		return attempt.Sent(), overhttp.Explain(ctx, s.config.files(), err)
	}
	if response.StatusCode != http.StatusOK {
		if response.StatusCode == http.StatusUnauthorized && s.login != nil {
			s.login.refused()
		}
		return attempt.Sent(), answerOf(response.StatusCode, text)
	}
	if answer == nil {
		return attempt.Sent(), nil
	}
	return attempt.Sent(), json.Unmarshal(text, answer)
}

// Close implements [sinks.Sink].
func (s *Sink) Close(ctx context.Context) error {
	last := func() {
		s.http.Transport.CloseIdleConnections()
		if s.login != nil {
			s.login.close()
		}
	}
	if err := s.calls.Close(ctx, last); err != nil {
		return fmt.Errorf("close Pub/Sub sink: %w", err)
	}
	return nil
}
