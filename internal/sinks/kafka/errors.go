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

// notStoredError is a failure that proves that nothing was stored: the broker cannot have
// had a whole request, or its answer says that it has appended none of it.
type notStoredError struct{ cause error }

func (e *notStoredError) Error() string { return e.cause.Error() }
func (e *notStoredError) Unwrap() error { return e.cause }

// loginError means that we cannot identify the broker, or that it refuses us.
type loginError struct{ cause error }

func (e *loginError) Error() string { return e.cause.Error() }
func (e *loginError) Unwrap() error { return e.cause }

// deafError means that no broker of the cluster could be reached and asked.
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
	return isTimeout(err) || errors.As(err, &network) || errors.Is(err, errNotKafka) ||
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

// byCode says what a broker's error code means for the messages of a request. A code is
// listed as refusing them only where Kafka answers it before the leader has appended
// (KafkaApis.handleProduceRequest, Partition.appendRecordsToLeader, UnifiedLog.append), and
// never to a request that was appended and waits for its replicas (DelayedProduce.tryComplete).
// A code that is not listed is Unknown: nothing says that they were not stored.
var byCode = map[kafka.Error]verdict{
	// UnifiedLog.append checks the batch, and LogValidator each record, before any of it is written.
	kafka.MessageSizeTooLarge: {sinks.Permanent, sinks.ReasonTooLarge},
	kafka.RecordListTooLarge:  {sinks.Permanent, sinks.ReasonTooLarge},
	kafka.InvalidRecord:       {sinks.Permanent, sinks.ReasonInvalid}, // no key on a compacted topic
	kafka.InvalidMessage:      {sinks.Retryable, sinks.ReasonRefused}, // a wrong checksum
	kafka.InvalidTimestamp:    {sinks.Retryable, sinks.ReasonRefused},
	// The broker checks the name before it looks for the partition.
	kafka.InvalidTopic: {sinks.Permanent, sinks.ReasonInvalid},
	// Not Kafka's own answer: a policy that a provider puts before the log.
	kafka.PolicyViolation: {sinks.Retryable, sinks.ReasonRefused},

	// The broker checks rights and versions before it handles the request, the login before it reads it.
	kafka.TopicAuthorizationFailed:   {sinks.Unavailable, sinks.ReasonAuth},
	kafka.ClusterAuthorizationFailed: {sinks.Unavailable, sinks.ReasonAuth},
	kafka.UnsupportedSASLMechanism:   {sinks.Unavailable, sinks.ReasonAuth},
	kafka.IllegalSASLState:           {sinks.Unavailable, sinks.ReasonAuth},
	kafka.SASLAuthenticationFailed:   {sinks.Unavailable, sinks.ReasonAuth},
	kafka.UnsupportedVersion:         {sinks.Unavailable, sinks.ReasonBroker}, // too old or too new a broker is no fault of any message
	// The leader counts its replicas before it appends. Those that leave later are AFTER_APPEND, below.
	kafka.NotEnoughReplicas: {sinks.Unavailable, sinks.ReasonBroker},

	// Before the append, or after it, when the partition moves off the broker or is deleted
	// while the request waits for its replicas. See [provesNotAppended].
	kafka.NotLeaderForPartition:   {sinks.Unknown, sinks.ReasonBroker},
	kafka.UnknownTopicOrPartition: {sinks.Unknown, sinks.ReasonTopicMissing},

	// The leader has appended it and does not know of the others, or the disk failed somewhere in between.
	kafka.RequestTimedOut:              {sinks.Unknown, sinks.ReasonTimeout},
	kafka.NotEnoughReplicasAfterAppend: {sinks.Unknown, sinks.ReasonBroker},
	kafka.KafkaStorageError:            {sinks.Unknown, sinks.ReasonBroker},
	kafka.NetworkException:             {sinks.Unknown, sinks.ReasonConnection},

	// Kafka answers these to other requests, when nothing is stored ([notStoredError]). In
	// answer to a produce, their meaning is unknown.
	kafka.LeaderNotAvailable:      {sinks.Unknown, sinks.ReasonBroker},
	kafka.BrokerNotAvailable:      {sinks.Unknown, sinks.ReasonBroker},
	kafka.ReplicaNotAvailable:     {sinks.Unknown, sinks.ReasonBroker},
	kafka.ThrottlingQuotaExceeded: {sinks.Unknown, sinks.ReasonThrottled},
}

// provesNotAppended reports whether the answer to a produce says by itself that the leader
// has appended nothing. Of the codes that Kafka answers before and after the append, it
// gives those after it with the offset at which it has appended, since DelayedProduce only
// replaces the code of the answer, and the others with none (-1). Offsets prove nothing with
// the other codes: a disk that fails in the append has KAFKA_STORAGE_ERROR without an offset.
func provesNotAppended(code kafka.Error, offset int64) bool {
	return offset < 0 && (code == kafka.NotLeaderForPartition || code == kafka.UnknownTopicOrPartition)
}

// classify says what an error means for the messages of its request. It is the
// whole cluster that failed only where no broker of it could be asked: a broker
// that refuses us, or is gone, is the matter of the partitions that it leads. What
// is Unknown is always of one partition.
func classify(err error) sinks.Outcome {
	v := judge(err)
	var notStored *notStoredError
	if v.class == sinks.Unknown && errors.As(err, &notStored) {
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
