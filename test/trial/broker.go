package trial

import (
	"context"
	"time"

	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
)

// Record is one message as a consumer of the broker sees it.
type Record struct {
	ID, Key string
	Headers map[string]string
	Body    []byte
	// At is when the broker stored it, or, where it does not tell, when the
	// consumer got it.
	At time.Time
	// Seen says that At is when the consumer got it.
	Seen bool
}

// Broker is a real broker, and what a run does with it.
type Broker interface {
	// Name is the sink's type.
	Name() string
	// Server is the process, to be stopped and started.
	Server() *service.Server
	// SinkConfig is the sink's section of a configuration, in YAML flow style.
	SinkConfig() string
	// MakeTopic creates a topic that keeps what is published to it.
	MakeTopic(ctx context.Context, topic string) error
	// Consume calls each for every record of the topic, from the first one, in
	// the order of the broker, until ctx ends.
	Consume(ctx context.Context, topic string, each func(Record)) error
	// Stored is how many records the topic holds.
	Stored(ctx context.Context, topic string) (int64, error)
	// Publisher publishes one message as a producer's own client does, to a topic
	// that exists, and gives up after limit. end closes the client.
	Publisher(limit time.Duration) (publish outbox.Publisher, end func(), err error)
	// BreakTopic makes a topic that fails; heal mends it and keeps what it holds.
	BreakTopic(ctx context.Context, topic string, fault Fault) (heal func(context.Context) error, err error)
}

// publishLimit is when a producer that publishes again gives one try up.
const publishLimit = 5 * time.Second

// StartBroker starts the broker of that name. The properties are Kafka's, besides those that it has anyway.
func StartBroker(ctx context.Context, name, properties string) (Broker, error) {
	switch name {
	case "nats":
		return startNATS(ctx)
	case "rabbitmq":
		return startRabbitMQ(ctx)
	case "pubsub":
		return startPubSub(ctx)
	case "redis":
		return startStreams(ctx)
	case "sqs":
		return startSQS(ctx)
	default:
		return startKafka(ctx, properties)
	}
}
