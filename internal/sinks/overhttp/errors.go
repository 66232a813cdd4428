package overhttp

import (
	"context"
	"errors"
	"net"

	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

// LoginError says that there is no login to send with a request. Its cause may be another service's answer.
type LoginError struct{ Cause error }

func (e *LoginError) Error() string { return "no login: " + e.Cause.Error() }

func (e *LoginError) Unwrap() error { return e.Cause }

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
