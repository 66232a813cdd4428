package nats

import (
	"context"
	"errors"
	"net"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// loginError is a login or a certificate of ours that cannot be read.
type loginError struct{ error }

func (e loginError) Unwrap() error { return e.error }

// JetStream's codes, as far as they decide something.
const (
	codeResourcesExceeded    = 10002 // of the account
	codeClusterNotAssigned   = 10007
	codeClusterNotAvailable  = 10008
	codeClusterNotLeader     = 10009
	codeInsufficientResource = 10023
	codeNoAccount            = 10035
	codeNotEnabledForAccount = 10039
	codeStorageExceeded      = 10047
	codeMessageTooLarge      = 10054
	codeStreamNotFound       = 10059
	codeNotEnabled           = 10076
	codeHeadersTooLarge      = 10097
	codeDuplicateInProcess   = 10158
	codeTooManyRequests      = 10167
)

// classify says what an answer or error means for the message that it belongs
// to, or that would have been sent. It is the only place that does.
func classify(err error) sinks.Outcome {
	class, reason := sinks.Unknown, sinks.ReasonConnection
	var api *jetstream.APIError
	var invalid *message.InvalidError
	switch {
	case errors.As(err, &api):
		class, reason = classifyAPI(int(api.ErrorCode))
	case errors.As(err, &invalid), errors.Is(err, natsgo.ErrBadSubject), errors.Is(err, natsgo.ErrBadHeaderMsg):
		class, reason = sinks.Permanent, sinks.ReasonInvalid
	case errors.Is(err, natsgo.ErrMaxPayload):
		class, reason = sinks.Permanent, sinks.ReasonTooLarge
	case errors.Is(err, natsgo.ErrPermissionViolation):
		class, reason = sinks.Retryable, sinks.ReasonAuth
	case errors.Is(err, errNoResponders):
		// Certainly not stored; why not is asked later.
		class, reason = sinks.Unavailable, sinks.ReasonBroker
	case errors.Is(err, natsgo.ErrConnectionClosed), errors.Is(err, natsgo.ErrInvalidConnection), errors.Is(err, natsgo.ErrConnectionDraining):
		class = sinks.Unavailable // the client took nothing
	case errors.Is(err, natsgo.ErrHeadersNotSupported):
		class, reason = sinks.Unavailable, sinks.ReasonBroker
	case errors.Is(err, errInvalidAck):
		reason = sinks.ReasonBroker
	default:
		reason = why(err)
	}
	return sinks.Failed(class, reason, err)
}

// classifyAPI decides by JetStream's own error code. What it does not list was
// refused by the stream: full, sealed, offline, a store that failed.
func classifyAPI(code int) (sinks.Class, sinks.Reason) {
	switch code {
	case codeMessageTooLarge, codeHeadersTooLarge:
		return sinks.Permanent, sinks.ReasonTooLarge
	case codeStreamNotFound:
		return sinks.Retryable, sinks.ReasonTopicMissing
	case codeTooManyRequests:
		return sinks.Retryable, sinks.ReasonThrottled
	case codeDuplicateInProcess:
		// An earlier copy is on its way to the replicas and may yet fail.
		return sinks.Unknown, sinks.ReasonBroker
	case codeResourcesExceeded, codeInsufficientResource, codeStorageExceeded, codeNoAccount,
		codeNotEnabled, codeNotEnabledForAccount, codeClusterNotAssigned, codeClusterNotAvailable, codeClusterNotLeader:
		return sinks.Unavailable, sinks.ReasonBroker
	default:
		return sinks.Retryable, sinks.ReasonRefused
	}
}

// why names the reason of an error that is not about one message.
func why(err error) sinks.Reason {
	var login loginError
	var tlsAlert *net.OpError
	switch {
	case errors.Is(err, errClosed):
		return sinks.ReasonClosed
	case errors.As(err, &login),
		errors.As(err, &tlsAlert) && tlsAlert.Op == "remote error", // as crypto/tls names the other side's alert
		errors.Is(err, natsgo.ErrTLS), errors.Is(err, natsgo.ErrSecureConnRequired), errors.Is(err, natsgo.ErrSecureConnWanted),
		errors.Is(err, natsgo.ErrAuthorization), errors.Is(err, natsgo.ErrAuthExpired),
		errors.Is(err, natsgo.ErrAuthRevoked), errors.Is(err, natsgo.ErrAccountAuthExpired):
		return sinks.ReasonAuth
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return sinks.ReasonTimeout
	default:
		return sinks.ReasonConnection
	}
}
