package overhttp

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

// LoginError says that there is no login to send with a request. Its cause may be another service's answer.
type LoginError struct{ Cause error }

func (e *LoginError) Error() string { return "no login: " + e.Cause.Error() }

func (e *LoginError) Unwrap() error { return e.Cause }

// Explain says why a request has failed: what has ended its context, or what the files have to do with it.
func Explain(ctx context.Context, files tlsclient.Files, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return files.Explain(err)
}

// ReasonOf names why a request failed that has no answer.
func ReasonOf(err error) sinks.Reason {
	timeout, isNet := errors.AsType[net.Error](err)
	_, isLogin := errors.AsType[*LoginError](err)
	switch {
	case errors.Is(err, ErrClosed):
		return sinks.ReasonClosed
	case isLogin, tlsclient.IsTrust(err):
		return sinks.ReasonAuth
	case errors.Is(err, ErrTimeout), errors.Is(err, ErrNoSlot), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		isNet && timeout.Timeout():
		return sinks.ReasonTimeout
	default:
		return sinks.ReasonConnection
	}
}

// TooLargeError is a message that a service never takes. Sizes are in bytes.
type TooLargeError struct {
	Service    string
	Size, Most int
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the message has %d bytes with what goes with its body, %s takes %d", e.Size, e.Service, e.Most)
}

// RefusedError is a service's refusal of a message. It shows nothing else of the answer, which may repeat what was sent.
type RefusedError struct{ Service, Code string }

func (e *RefusedError) Error() string { return e.Service + " refused the message: " + e.Code }

// OfUnsent is what an error means for messages that no connection had any of.
func OfUnsent(err error) sinks.Outcome {
	_, isInvalid := errors.AsType[*message.InvalidError](err)
	_, isLarge := errors.AsType[*TooLargeError](err)
	switch {
	case isInvalid:
		return sinks.Outcome{Class: sinks.Permanent, Reason: sinks.ReasonInvalid}
	case isLarge:
		return sinks.Outcome{Class: sinks.Permanent, Reason: sinks.ReasonTooLarge}
	}
	reason := ReasonOf(err)
	return sinks.Outcome{Class: sinks.Unavailable, Reason: reason, Whole: reason != sinks.ReasonTimeout}
}
