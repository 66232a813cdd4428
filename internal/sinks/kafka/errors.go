package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/segmentio/kafka-go"

	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

// notSentError is a failure before the broker can have had a whole request.
type notSentError struct{ cause error }

func (e *notSentError) Error() string { return e.cause.Error() }
func (e *notSentError) Unwrap() error { return e.cause }

// loginError is a broker that we cannot identify, or that refuses us.
type loginError struct{ cause error }

func (e *loginError) Error() string { return e.cause.Error() }
func (e *loginError) Unwrap() error { return e.cause }

// deafError is that no broker of the cluster could be reached and asked.
type deafError struct{ cause error }

func (e *deafError) Error() string { return e.cause.Error() }
func (e *deafError) Unwrap() error { return e.cause }

func nobodyAnswers(err error) bool {
	var deaf *deafError
	return errors.As(err, &deaf)
}

// asLoginError marks the failure of a handshake, unless it was the network's.
func asLoginError(err error) error {
	var remote *net.OpError
	var alert tls.AlertError
	switch {
	case tlsclient.IsTrust(err):
		return &loginError{err}
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

	kafka.InvalidMessage:   {sinks.Retryable, sinks.ReasonRefused},
	kafka.InvalidTimestamp: {sinks.Retryable, sinks.ReasonRefused},
	kafka.PolicyViolation:  {sinks.Retryable, sinks.ReasonRefused},

	// Not appended, and the topic's, the partition's or the broker's matter.
	kafka.UnknownTopicOrPartition:  {sinks.Unavailable, sinks.ReasonTopicMissing},
	kafka.TopicAuthorizationFailed: {sinks.Unavailable, sinks.ReasonAuth},
	kafka.ThrottlingQuotaExceeded:  {sinks.Unavailable, sinks.ReasonThrottled},
	kafka.LeaderNotAvailable:       {sinks.Unavailable, sinks.ReasonBroker},
	kafka.NotLeaderForPartition:    {sinks.Unavailable, sinks.ReasonBroker},
	kafka.BrokerNotAvailable:       {sinks.Unavailable, sinks.ReasonBroker},
	kafka.ReplicaNotAvailable:      {sinks.Unavailable, sinks.ReasonBroker},
	kafka.NotEnoughReplicas:        {sinks.Unavailable, sinks.ReasonBroker},
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

// classify says what an error means for the messages of its request. It is the
// whole cluster that failed only where no broker of it could be asked: a broker
// that refuses us, or is gone, is the matter of the partitions that it leads. What
// is Unknown is always of one partition.
func classify(err error) sinks.Outcome {
	v := judge(err)
	var notSent *notSentError
	if v.class == sinks.Unknown && errors.As(err, &notSent) {
		v.class = sinks.Unavailable
	}
	outcome := sinks.Failed(v.class, v.reason, err)
	outcome.Whole = v.class == sinks.Unavailable && nobodyAnswers(err)
	return outcome
}

func judge(err error) verdict {
	var login *loginError
	var code kafka.Error
	switch {
	case errors.As(err, &login):
		return verdict{sinks.Unavailable, sinks.ReasonAuth}
	case errors.As(err, &code):
		if v, listed := byCode[code]; listed {
			return v
		}
		return verdict{sinks.Unknown, sinks.ReasonBroker}
	case isTimeout(err):
		return verdict{sinks.Unknown, sinks.ReasonTimeout}
	default:
		return verdict{sinks.Unknown, sinks.ReasonConnection}
	}
}
