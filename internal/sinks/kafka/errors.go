package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"syscall"

	"github.com/segmentio/kafka-go"

	"github.com/delaybridge/delaybridge/internal/sinks"
)

// notSentError is a failure before the broker can have had a whole request.
type notSentError struct{ cause error }

func (e *notSentError) Error() string { return e.cause.Error() }
func (e *notSentError) Unwrap() error { return e.cause }

// loginError is a broker that we cannot identify, or that refuses us.
type loginError struct{ cause error }

func (e *loginError) Error() string { return e.cause.Error() }
func (e *loginError) Unwrap() error { return e.cause }

// asLoginError marks the failure of a handshake, unless it was the network's.
func asLoginError(err error) error {
	var remote *net.OpError
	var alert tls.AlertError
	switch {
	case errors.As(err, &remote) && remote.Op == "remote error", errors.As(err, &alert):
		// This is how crypto/tls reports the peer's alert, also after the handshake.
		return &loginError{err}
	case isNetwork(err):
		return err
	default:
		return &loginError{err}
	}
}

func isNetwork(err error) bool {
	var network net.Error
	return isTimeout(err) || errors.As(err, &network) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func isTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, os.ErrDeadlineExceeded)
}

// verdict is a class with its reason.
type verdict struct {
	class  sinks.Class
	reason sinks.Reason
}

// byCode says what a broker's error code means for the messages of a request. A
// code that is not listed is Unknown: nothing says that they were not stored.
var byCode = map[kafka.Error]verdict{
	kafka.MessageSizeTooLarge: {sinks.Permanent, sinks.ReasonTooLarge},
	kafka.RecordListTooLarge:  {sinks.Permanent, sinks.ReasonTooLarge},
	kafka.InvalidTopic:        {sinks.Permanent, sinks.ReasonInvalid},
	kafka.InvalidRecord:       {sinks.Permanent, sinks.ReasonInvalid}, // no key on a compacted topic

	kafka.UnknownTopicOrPartition:  {sinks.Retryable, sinks.ReasonTopicMissing},
	kafka.TopicAuthorizationFailed: {sinks.Retryable, sinks.ReasonAuth}, // this topic only
	kafka.InvalidMessage:           {sinks.Retryable, sinks.ReasonRefused},
	kafka.InvalidTimestamp:         {sinks.Retryable, sinks.ReasonRefused},
	kafka.PolicyViolation:          {sinks.Retryable, sinks.ReasonRefused},
	kafka.ThrottlingQuotaExceeded:  {sinks.Retryable, sinks.ReasonThrottled},

	// Not appended, and the broker's matter.
	kafka.LeaderNotAvailable:    {sinks.Unavailable, sinks.ReasonBroker},
	kafka.NotLeaderForPartition: {sinks.Unavailable, sinks.ReasonBroker},
	kafka.BrokerNotAvailable:    {sinks.Unavailable, sinks.ReasonBroker},
	kafka.ReplicaNotAvailable:   {sinks.Unavailable, sinks.ReasonBroker},
	kafka.NotEnoughReplicas:     {sinks.Unavailable, sinks.ReasonBroker},
	// Too old or too new a broker is no fault of any message.
	kafka.UnsupportedVersion:         {sinks.Unavailable, sinks.ReasonBroker},
	kafka.ClusterAuthorizationFailed: {sinks.Unavailable, sinks.ReasonAuth},
	kafka.BrokerAuthorizationFailed:  {sinks.Unavailable, sinks.ReasonAuth},
	kafka.UnsupportedSASLMechanism:   {sinks.Unavailable, sinks.ReasonAuth},
	kafka.IllegalSASLState:           {sinks.Unavailable, sinks.ReasonAuth},
	kafka.SASLAuthenticationFailed:   {sinks.Unavailable, sinks.ReasonAuth},

	// Appended by the leader at least, or perhaps.
	kafka.RequestTimedOut:              {sinks.Unknown, sinks.ReasonTimeout},
	kafka.NetworkException:             {sinks.Unknown, sinks.ReasonConnection},
	kafka.NotEnoughReplicasAfterAppend: {sinks.Unknown, sinks.ReasonBroker},
	kafka.KafkaStorageError:            {sinks.Unknown, sinks.ReasonBroker},
}

// classify says what an error means for the messages of its request.
func classify(err error) sinks.Outcome {
	var login *loginError
	var code kafka.Error
	var notSent *notSentError
	switch {
	case errors.As(err, &login):
		return sinks.Failed(sinks.Unavailable, sinks.ReasonAuth, err)
	case errors.As(err, &code):
		v, listed := byCode[code]
		if !listed {
			v = verdict{sinks.Unknown, sinks.ReasonBroker}
		}
		if v.class == sinks.Unknown && errors.As(err, &notSent) {
			v.class = sinks.Unavailable
		}
		return sinks.Failed(v.class, v.reason, err)
	}
	reason := sinks.ReasonConnection
	if isTimeout(err) {
		reason = sinks.ReasonTimeout
	}
	if errors.As(err, &notSent) {
		return sinks.Failed(sinks.Unavailable, reason, err)
	}
	return sinks.Failed(sinks.Unknown, reason, err)
}

// overtaking is the outcome of a message that was held back because an earlier
// one of its partition failed.
func (s *Sink) overtaking(blocked error) sinks.Outcome {
	return sinks.Failed(sinks.Unavailable, s.outcome(blocked).Reason, fmt.Errorf("not sent after an earlier failure: %w", blocked))
}

// reply is what a broker said to one request.
type reply struct {
	outcome sinks.Outcome
	// refused are the positions of the messages for which the broker refused
	// the request; the others of it are not stored either.
	refused map[int]error
	// divisible is set where a part of the request may be accepted.
	divisible bool
}

// newReply reads the answer to a request of n messages.
func newReply(response *kafka.ProduceResponse, n int) reply {
	if response.Error == nil {
		return reply{outcome: sinks.Acked()}
	}
	r := reply{outcome: classify(response.Error)}
	for _, code := range aboutRecords {
		if errors.Is(response.Error, code) {
			r.divisible = true
			r.refused = response.RecordErrors
			maps.DeleteFunc(r.refused, func(position int, _ error) bool { return position < 0 || position >= n })
		}
	}
	return r
}

// aboutRecords are the codes by which a broker refuses a request because of
// some of its records, or because it has too many.
var aboutRecords = []kafka.Error{
	kafka.MessageSizeTooLarge, kafka.RecordListTooLarge, kafka.InvalidRecord, kafka.InvalidTimestamp, kafka.InvalidMessage,
}

// doubtful reports whether the partition may have moved.
func (r reply) doubtful() bool {
	return r.outcome.Class == sinks.Unknown || r.outcome.Class == sinks.Unavailable || r.outcome.Reason == sinks.ReasonTopicMissing
}

// settling reports whether the broker itself said that it is not, or not yet,
// the one to ask: the case for a moment after a topic was made or a leader moved.
func (r reply) settling() bool {
	err := r.outcome.Err
	return errors.Is(err, kafka.NotLeaderForPartition) || errors.Is(err, kafka.LeaderNotAvailable) || errors.Is(err, kafka.UnknownTopicOrPartition)
}

// split separates the messages that were refused from the others.
func (r reply) split(sent []item) (refused, rest []item) {
	for position, i := range sent {
		if _, bad := r.refused[position]; bad {
			refused = append(refused, i)
		} else {
			rest = append(rest, i)
		}
	}
	return refused, rest
}

// failure is the reply where there was none from the broker.
func (s *Sink) failure(err error) reply { return reply{outcome: s.outcome(err)} }
