// Package sinks is the contract between the poller and a broker: what a sink
// publishes, and which outcomes it may report for each message.
//
// A sink never decides what happens to a message. It reports what the broker did,
// as one [Outcome] per message, and the poller settles the claim accordingly. The
// implementations are in the packages below; all pass the suite sinktest.
package sinks

import (
	"context"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// Sink publishes to one broker. All methods are safe for concurrent use: every
// shard of every queue that names the sink calls it, often with several batches
// at a time.
//
// A constructor does no I/O. A sink connects by itself, in the background or on
// the first call, and reconnects for as long as it is open.
type Sink interface {
	// Route names what fails together with the message at the broker, as far as
	// that is known without asking. It does no I/O, does not block, and is called
	// for each message before it is published.
	Route(m *message.Message) Route

	// Publish hands the batch to the broker and reports one outcome a message, by
	// index, each as soon as it is known. It returns when all are reported, and
	// soon after ctx has ended: a message without an answer is then [Unknown], one
	// that was certainly not handed to a connection [Unavailable].
	//
	// The sink's publish timeout counts for each message from when it was handed
	// to a connection, and stops while that connection makes progress with it. A
	// message that waits in this process that long for a connection without
	// progress is Unavailable.
	//
	// Messages of one Key and Topic reach the broker in the order of the batch:
	// if one is Unknown or Unavailable, no later one is stored. If the
	// broker may store a later one and refuse an earlier one, the sink has only
	// one of them without an answer. A message that the broker refuses, and a
	// route that fails or hangs, do not fail or delay its batch mates of other
	// routes. The sink keeps no reference to the batch's bytes after it returned.
	Publish(ctx context.Context, batch []message.Message, outcomes *Outcomes)

	// Ping reports whether the broker can be reached and accepts our login now.
	// It changes nothing at the broker.
	Ping(ctx context.Context) error

	// Close ends running calls (their outcomes are Unknown or Unavailable),
	// closes the connections and waits for the sink's goroutines, at most
	// until ctx ends. Calls to Publish after Close report Unavailable. It may be
	// called twice.
	Close(ctx context.Context) error
}

// Route names what fails together at a broker: a Kafka topic and partition, a
// RabbitMQ exchange and routing key, a NATS subject. Messages of one Key and
// Topic have one route. It is for comparing, for logs and for people.
type Route string

// Publisher is the part of a [Sink] that publishes.
type Publisher interface {
	Publish(ctx context.Context, batch []message.Message, outcomes *Outcomes)
}

// Publish publishes a batch and waits for all outcomes.
func Publish(ctx context.Context, sink Publisher, batch []message.Message) []Outcome {
	outcomes := NewOutcomes(len(batch))
	sink.Publish(ctx, batch, outcomes)
	return outcomes.All()
}

// Class says what the broker did with a message, and so what the poller does next.
type Class int

// The classes of outcomes. The zero value is Unknown, so that nothing is ever
// acknowledged by a default.
const (
	// Unknown: the broker may or may not have stored it. It is published again
	// and counts as a possible duplicate. Anything not proven is Unknown,
	// whatever the broker calls it.
	Unknown Class = iota
	// Acknowledged: the broker has stored it, as far as its own promise goes.
	Acknowledged
	// Permanent: this message can never work (too large, invalid topic). It goes
	// to the dead letters at once.
	Permanent
	// Retryable: the broker refused this very message, and it may work later. It
	// is tried again with backoff, and others of its Key may pass it. See Outcome.MaybeOut.
	Retryable
	// Unavailable: it is the route, or the whole broker (see Outcome.Whole), and
	// not the message, which is certainly not stored: no leader, too few replicas,
	// queue or stream full, throttled, topic missing, unroutable, forbidden, not
	// connected. Messages wait, in order, and no attempt is counted.
	Unavailable
)

// String returns the class as logs and metrics name it.
func (c Class) String() string {
	switch c {
	case Acknowledged:
		return "acknowledged"
	case Permanent:
		return "permanent"
	case Retryable:
		return "retryable"
	case Unavailable:
		return "unavailable"
	default:
		return "unknown"
	}
}

// Reason is why a message was not acknowledged: a closed set, so that it can
// be a metric's label.
type Reason string

// The reasons of outcomes that are not Acknowledged.
const (
	ReasonTooLarge     Reason = "too_large"
	ReasonInvalid      Reason = "invalid" // topic or header that the broker cannot take
	ReasonTopicMissing Reason = "topic_missing"
	ReasonUnroutable   Reason = "unroutable"
	ReasonRefused      Reason = "refused" // the broker said no to this message, or took no responsibility for it: nack, limit reached
	ReasonFull         Reason = "full"    // the queue or stream takes no more
	ReasonThrottled    Reason = "throttled"
	ReasonAuth         Reason = "auth"
	ReasonConnection   Reason = "connection"
	ReasonTimeout      Reason = "timeout"
	ReasonClosed       Reason = "closed" // the sink was closed
	ReasonBroker       Reason = "broker" // the broker's own trouble: no leader, not enough replicas

	// Of a topic of which it is not known whether the queue takes it, since Redis did not say.
	ReasonUnknownTopic Reason = "unknown_topic"
	// Of a sealed body that does not open, so that the sink does not get the message.
	ReasonUnknownKey Reason = "unknown_key"
	ReasonBrokenSeal Reason = "broken_seal"
)

// Outcome is the result of publishing one message.
type Outcome struct {
	Class  Class
	Reason Reason
	// Err is the cause; nil if Acknowledged. It never holds a payload or a secret.
	Err error
	// Whole is set if an Unavailable or Unknown concerns the whole broker, like
	// a lost connection: other routes would fare no better.
	Whole bool
	// OfRoute is set if the broker itself has answered that the route accepts nothing,
	// which proves nothing about the message: a queue is full, but others bound to the
	// route are not. An Unknown then counts no attempt, and the route is probed
	// seldom, since each probe may leave a copy.
	OfRoute bool
	// MaybeOut is set if a Retryable message may have been stored all the same: the broker has
	// failed with this very one, and says nothing of how far it came. It counts as a possible
	// duplicate, too.
	MaybeOut bool
	// Route is the route that failed, if it is not the one that [Sink.Route]
	// names for the message.
	Route Route
	// Duplicate is set if the broker acknowledged, and said that it had the
	// message already (NATS' own deduplication).
	Duplicate bool
	// Place is where the broker has stored it, if Acknowledged.
	Place Place
}

// Acked is the outcome of an acknowledged message.
func Acked() Outcome { return Outcome{Class: Acknowledged} }

// Failed returns the outcome of a message that was not acknowledged.
func Failed(class Class, reason Reason, err error) Outcome {
	return Outcome{Class: class, Reason: reason, Err: err}
}

// FailedWhole returns the outcome of a message if the whole broker failed.
func FailedWhole(class Class, reason Reason, err error) Outcome {
	return Outcome{Class: class, Reason: reason, Err: err, Whole: true}
}
