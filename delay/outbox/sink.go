package outbox

import (
	"fmt"
	"slices"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// Sink is the kind of broker that a queue's messages go to, as the bridge's
// configuration calls it. Its rules decide which topics and headers are valid.
type Sink string

// The sinks.
const (
	Kafka    = Sink(message.Kafka)
	NATS     = Sink(message.NATS)
	PubSub   = Sink(message.PubSub)
	RabbitMQ = Sink(message.RabbitMQ)
	Redis    = Sink(message.Redis) // Streams
	SQS      = Sink(message.SQS)
	Webhook  = Sink(message.Webhook)
)

func (o *Outbox) checkSinks() error {
	for queue, sink := range o.sinks {
		if !message.QueueName.MatchString(queue) {
			return invalidQueue(queue)
		}
		if known := message.SinkTypes(); !slices.Contains(known, message.SinkType(sink)) {
			return invalid("sink", string(sink), fmt.Sprintf("one of %v", known))
		}
	}
	return nil
}

// limits are a queue's limits.
type limits struct {
	sink    message.SinkType // "": any
	maxSize int
	topics  message.Topics
}

// layoutTrust is how old a layout may be to refuse a message by it, since the queue's sink
// may have changed. A [Tracked] reads the layout every ten seconds.
const layoutTrust = time.Minute

// limits returns what is known of a queue's limits without a call.
func (o *Outbox) limits(queue string) limits {
	l := limits{sink: message.SinkType(o.sinks[queue]), maxSize: o.maxSize}
	if q, ok := o.queues.Load(queue); ok {
		if layout := q.(*store.Rows).KnownLayout(layoutTrust); layout != nil {
			l.sink, l.maxSize, l.topics = layout.Sink, min(l.maxSize, layout.MaxMessage), layout.Rules.Topics
		}
	}
	return l
}
