package nats

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strings"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

// loginError is a login or a certificate of ours that cannot be read.
type loginError struct{ error }

func (e loginError) Unwrap() error { return e.error }

// JetStream's codes, as far as they decide something.
const (
	codeResourcesExceeded    = 10002 // of the account, for this kind of storage or tier
	codeClusterNotAssigned   = 10007
	codeClusterNotAvailable  = 10008
	codeClusterNotLeader     = 10009
	codeInsufficientResource = 10023 // of the server
	codeMemoryExceeded       = 10028
	codeNoAccount            = 10035
	codeNotEnabledForAccount = 10039
	codeStorageExceeded      = 10047
	codeMessageTooLarge      = 10054
	codeStreamNotFound       = 10059
	codeNotEnabled           = 10076
	codeStoreFailed          = 10077 // for the reason in its description
	codeHeadersTooLarge      = 10097
	codeSealed               = 10109
	codeOffline              = 10118
	codeDuplicateInProcess   = 10158
	codeTooManyRequests      = 10167
	codeOfflineReason        = 10194
)

// serverFault is the least of JetStream's own status codes, as in HTTP, that
// says that the message is not to blame.
const serverFault = 500

// A server refuses to store what would pass a limit of the stream, all its replicas alike.
const (
	limitReached = "maximum " // messages, bytes, messages per subject
	tooLarge     = "message too large"
)

// classify says what an answer or error means for the message that it belongs
// to, or that would have been sent. It is the only place that does.
func classify(err error) sinks.Outcome {
	var api *jetstream.APIError
	var invalid *message.InvalidError
	switch {
	case errors.As(err, &api):
		return classifyAPI(api, err)
	case errors.As(err, &invalid), errors.Is(err, natsgo.ErrBadSubject), errors.Is(err, natsgo.ErrBadHeaderMsg):
		return sinks.Failed(sinks.Permanent, sinks.ReasonInvalid, err)
	case errors.Is(err, natsgo.ErrMaxPayload):
		return sinks.Failed(sinks.Permanent, sinks.ReasonTooLarge, err)
	case errors.Is(err, natsgo.ErrPermissionViolation):
		return sinks.Failed(sinks.Unavailable, sinks.ReasonAuth, err)
	case errors.Is(err, errNoResponders):
		return sinks.Failed(sinks.Unavailable, sinks.ReasonBroker, err)
	case errors.Is(err, natsgo.ErrConnectionClosed), errors.Is(err, natsgo.ErrInvalidConnection), errors.Is(err, natsgo.ErrConnectionDraining):
		return sinks.FailedWhole(sinks.Unavailable, sinks.ReasonConnection, err) // the client took nothing
	case errors.Is(err, natsgo.ErrHeadersNotSupported):
		return sinks.FailedWhole(sinks.Unavailable, sinks.ReasonBroker, err)
	case errors.Is(err, errInvalidAck), errors.Is(err, errUnstored):
		return sinks.Failed(sinks.Unknown, sinks.ReasonBroker, err)
	case errors.Is(err, errNoAnswer):
		return sinks.Failed(sinks.Unknown, sinks.ReasonTimeout, err)
	default:
		return sinks.FailedWhole(sinks.Unknown, why(err), err)
	}
}

// classifyAPI decides by JetStream's own error code; if it does not know
// that, by whether the server says that it is its own fault: that is no proof, since
// the leader of a replicated stream answers after the replicas have agreed to store the
// message, with what went wrong in storing its own copy. A limit of the
// account is of one kind of storage or one tier, so it is the route's matter.
func classifyAPI(api *jetstream.APIError, err error) sinks.Outcome {
	isStoring := int(api.ErrorCode) == codeStoreFailed
	switch code := int(api.ErrorCode); {
	case code == codeMessageTooLarge, code == codeHeadersTooLarge, isStoring && api.Description == tooLarge:
		return sinks.Failed(sinks.Permanent, sinks.ReasonTooLarge, err)
	case code == codeStreamNotFound:
		return sinks.Failed(sinks.Unavailable, sinks.ReasonTopicMissing, err)
	case code == codeTooManyRequests:
		return sinks.Failed(sinks.Unavailable, sinks.ReasonThrottled, err)
	case slices.Contains([]int{codeResourcesExceeded, codeInsufficientResource, codeMemoryExceeded, codeStorageExceeded}, code),
		isStoring && strings.HasPrefix(api.Description, limitReached):
		return sinks.Failed(sinks.Unavailable, sinks.ReasonFull, err)
	case code == codeSealed, code == codeOffline, code == codeOfflineReason:
		return sinks.Failed(sinks.Unavailable, sinks.ReasonRefused, err)
	case code == codeNoAccount, code == codeNotEnabled, code == codeNotEnabledForAccount:
		return sinks.FailedWhole(sinks.Unavailable, sinks.ReasonBroker, err)
	case code == codeClusterNotAssigned, code == codeClusterNotAvailable, code == codeClusterNotLeader:
		return sinks.Failed(sinks.Unavailable, sinks.ReasonBroker, err)
	case code == codeDuplicateInProcess:
		// An earlier copy is on its way to the replicas and may yet fail.
		return sinks.Failed(sinks.Unknown, sinks.ReasonBroker, err)
	case isStoring, api.Code >= serverFault:
		outcome := sinks.Failed(sinks.Unknown, sinks.ReasonBroker, err)
		outcome.OfRoute = true
		return outcome
	default:
		return sinks.Failed(sinks.Retryable, sinks.ReasonRefused, err)
	}
}

// why names the reason of an error that is not about one message.
func why(err error) sinks.Reason {
	var login loginError
	var tlsAlert *net.OpError
	switch {
	case errors.Is(err, errClosed):
		return sinks.ReasonClosed
	case errors.As(err, &login), tlsclient.IsTrust(err),
		errors.As(err, &tlsAlert) && tlsAlert.Op == "remote error", // as crypto/tls names the other side's alert
		errors.Is(err, natsgo.ErrTLS), errors.Is(err, natsgo.ErrSecureConnRequired), errors.Is(err, natsgo.ErrSecureConnWanted),
		errors.Is(err, natsgo.ErrAuthorization), errors.Is(err, natsgo.ErrAuthExpired),
		errors.Is(err, natsgo.ErrAuthRevoked), errors.Is(err, natsgo.ErrAccountAuthExpired),
		errors.Is(err, natsgo.ErrPermissionViolation):
		return sinks.ReasonAuth
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, errSilent):
		return sinks.ReasonTimeout
	default:
		return sinks.ReasonConnection
	}
}
