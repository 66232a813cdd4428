// Package sinks is the contract between the poller and a broker: what a sink
// publishes, and which outcomes it may report for each message.
//
// A sink never decides what becomes of a message. It says what the broker did,
// as one [Outcome] a message, and the poller settles the claim accordingly. The
// implementations are in the packages below; all pass the suite sinktest.
package sinks

import (
	"context"

	"github.com/delaybridge/delaybridge/internal/message"
)

// Sink publishes to one broker. All methods are safe for concurrent use: every
// shard of every queue that names the sink calls it, often with several batches
// at a time.
//
// A constructor does no I/O. A sink connects by itself, in the background or on
// the first call, and reconnects for as long as it is open.
type Sink interface {
	// Publish hands the batch to the broker and blocks until the broker
	// acknowledged or refused each message, or ctx ends. It returns one outcome
	// a message, by index; what is not known when ctx ends is [Unknown], what was
	// certainly not handed over is [Unavailable].
	//
	// Messages of one Key and Topic reach the broker in the order of the batch.
	// A message that the broker refuses does not fail its batch mates. ctx
	// always has a deadline. The sink keeps no reference to the batch's bytes
	// after it returned.
	Publish(ctx context.Context, batch []message.Message) []Outcome

	// Ping reports whether the broker can be reached and accepts our login now.
	// It changes nothing at the broker.
	Ping(ctx context.Context) error

	// Close ends what is under way (its outcomes are Unknown or Unavailable),
	// closes the connections and waits for the sink's goroutines, at the most
	// until ctx ends. Calls to Publish after Close report Unavailable. It may be
	// called twice.
	Close(ctx context.Context) error
}

// Class says what the broker did with a message, and so what the poller does next.
type Class int

// The classes of outcomes. The zero value is Unknown, so that nothing is ever
// acknowledged by a default.
const (
	// Unknown: the broker may or may not have stored it. It is published again
	// and counts as a possible duplicate.
	Unknown Class = iota
	// Acknowledged: the broker has stored it, as far as its own promise goes.
	Acknowledged
	// Permanent: this message can never work (too large, invalid topic). It goes
	// to the dead letters at once.
	Permanent
	// Retryable: this message was refused and may work later (topic missing,
	// unroutable, throttled). It is tried again with backoff.
	Retryable
	// Unavailable: it is the broker, not the message, and nothing was handed
	// over. The shard waits, no attempt is counted.
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
	ReasonRefused      Reason = "refused" // the broker said no to this message: nack, limit reached
	ReasonThrottled    Reason = "throttled"
	ReasonAuth         Reason = "auth"
	ReasonConnection   Reason = "connection"
	ReasonTimeout      Reason = "timeout"
	ReasonClosed       Reason = "closed" // the sink was closed
	ReasonBroker       Reason = "broker" // the broker's own trouble: no leader, not enough replicas
)

// Outcome is what became of one message.
type Outcome struct {
	Class  Class
	Reason Reason
	// Err is the cause; nil where Acknowledged. It never holds a payload or a secret.
	Err error
	// Duplicate is set where the broker acknowledged, and said that it had the
	// message already (NATS' own deduplication).
	Duplicate bool
}

// Acked is the outcome of an acknowledged message.
func Acked() Outcome { return Outcome{Class: Acknowledged} }

// Failed is the outcome of a message that was not acknowledged.
func Failed(class Class, reason Reason, err error) Outcome {
	return Outcome{Class: class, Reason: reason, Err: err}
}

// Fill sets every outcome of a batch to the same one.
func Fill(outcomes []Outcome, outcome Outcome) {
	for i := range outcomes {
		outcomes[i] = outcome
	}
}
