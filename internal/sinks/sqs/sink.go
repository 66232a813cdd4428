// Package sqs publishes to queues of Amazon SQS, by SendMessageBatch to the queue that has the
// topic's name.
//
// A request has up to ten messages, one of each Key, since SQS may refuse one and store the next.
// Each queue is a route with slots of its own, so that one which hangs delays no other. The
// client's retries are off: where an answer is lost, the messages are Unknown. A queue is looked
// up once, and again when SQS says that it is gone; the package makes none.
//
// SQS carries text, and ten attributes. entry.go says how a message becomes that.
package sqs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/overhttp"
)

// DefaultPublishTimeout is how long a publish may take where Config says nothing.
const DefaultPublishTimeout = 10 * time.Second

// pingTimeout bounds a Ping whose ctx allows more.
const pingTimeout = 5 * time.Second

// Sink publishes to the queues of one account and region. Its goroutines are those of the calls
// of Publish, which await them, and those of net/http, which end with their connections.
type Sink struct {
	config      Config
	credentials aws.CredentialsProvider
	client      *sqs.Client
	http        overhttp.Client
	calls       *overhttp.Calls
	queues      *overhttp.Routes[*queue]
}

var _ sinks.Sink = (*Sink)(nil)

// New makes a sink. It reads the environment and the files of profiles, and connects to nothing.
func New(config Config) (*Sink, error) {
	loaded, err := config.load()
	if err != nil {
		return nil, err
	}
	s := &Sink{
		config: config, credentials: loaded.Credentials, http: overhttp.ServiceClient(config.files()),
		calls: overhttp.NewCalls(), queues: newQueues(config.requests()),
	}
	s.client = sqs.NewFromConfig(loaded, func(o *sqs.Options) {
		o.HTTPClient, o.Retryer = s.http, aws.NopRetryer{}
		if config.URL != "" {
			o.BaseEndpoint = &config.URL
		}
	})
	return s, nil
}

// Route implements [sinks.Sink]: the queue.
func (s *Sink) Route(m *message.Message) sinks.Route { return sinks.Route(m.Topic) }

// unknownName is asked for by a Ping that knows no queue.
const unknownName = "delaybridge"

// Ping implements [sinks.Sink]. It asks for the address of a queue: also a refusal says that SQS
// has accepted the login.
func (s *Sink) Ping(ctx context.Context) error {
	ctx, end, err := s.calls.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	name := s.queues.Find(func(q *queue) bool { return q.known() != "" })
	if name == "" {
		name = unknownName
	}
	if _, how, err := s.ask(ctx, name); err != nil && !isOfQueue(err, how) {
		return fmt.Errorf("ping SQS: %w", err)
	}
	return nil
}

// ask looks a queue up. how is how far the question came.
func (s *Sink) ask(ctx context.Context, name string) (address string, how overhttp.Sent, err error) {
	ctx, attempt := overhttp.Begin(ctx, s.config.timeout())
	defer attempt.End()
	if err := s.login(ctx); err != nil {
		return "", overhttp.Unsent, err
	}
	input := &sqs.GetQueueUrlInput{QueueName: &name}
	if s.config.Account != "" {
		input.QueueOwnerAWSAccountId = &s.config.Account
	}
	answer, err := s.client.GetQueueUrl(ctx, input)
	switch {
	case err != nil:
		return "", attempt.Sent(), overhttp.Explain(ctx, s.config.files(), err)
	case answer.QueueUrl == nil:
		return "", attempt.Sent(), errors.New("the answer has no address of the queue")
	}
	return *answer.QueueUrl, attempt.Sent(), nil
}

// login makes sure that there is something to sign with, which may take a question to another service.
func (s *Sink) login(ctx context.Context) error {
	if _, err := s.credentials.Retrieve(ctx); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return &overhttp.LoginError{Cause: err}
	}
	return nil
}

// Close implements [sinks.Sink].
func (s *Sink) Close(ctx context.Context) error {
	if err := s.calls.Close(ctx, s.http.Transport.CloseIdleConnections); err != nil {
		return fmt.Errorf("close SQS sink: %w", err)
	}
	return nil
}
