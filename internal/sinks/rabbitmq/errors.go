package rabbitmq

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/delaybridge/delaybridge/internal/sinks"
)

var (
	errClosed     = errors.New("the sink is closed")
	errBlocked    = errors.New("the broker blocks publishers: it is short of memory or disk")
	errNacked     = errors.New("the broker refused the message (nack)")
	errUnroutable = errors.New("no queue is bound for this topic")
	errTwin       = errors.New("a message of the same id and topic was returned as unroutable, maybe this one")
	errLost       = errors.New("the connection was lost")
)

// loginError says that the login could not even be tried.
type loginError struct{ cause error }

func (e *loginError) Error() string { return fmt.Sprintf("login: %v", e.cause) }
func (e *loginError) Unwrap() error { return e.cause }

// stage is how far a message had come when an error ended its publishing; the
// same error means different things for it.
type stage int

const (
	// notHanded: nothing of the message can have reached the broker.
	notHanded stage = iota
	// handed: the message was given to the connection, together with others, so
	// the error may be about another one.
	handed
	// alone: the message was given to a channel that held no other, so the
	// channel's error is about this one.
	alone
)

// classify turns an error into the outcome of a message at that stage.
func classify(s stage, err error) sinks.Outcome {
	reason := reasonOf(err)
	var exception *amqp.Error
	isException := errors.As(err, &exception) && exception.Server && exception.Recover
	switch {
	case errors.Is(err, errUnroutable), errors.Is(err, errNacked):
		return sinks.Failed(sinks.Retryable, reason, err)
	case errors.Is(err, errTwin):
		return sinks.Failed(sinks.Unknown, reason, err)
	case s == alone && isException && reason == sinks.ReasonTooLarge:
		return sinks.Failed(sinks.Permanent, reason, err)
	case s == alone && isException:
		return sinks.Failed(sinks.Retryable, reason, err)
	case s != notHanded:
		return sinks.Failed(sinks.Unknown, reason, err)
	case isException && reason == sinks.ReasonTopicMissing:
		return sinks.Failed(sinks.Retryable, reason, err)
	case reason == sinks.ReasonTooLarge:
		// A mate was too large and closed the channel before this one's turn.
		return sinks.Failed(sinks.Unavailable, sinks.ReasonBroker, err)
	default:
		return sinks.Failed(sinks.Unavailable, reason, err)
	}
}

func reasonOf(err error) sinks.Reason {
	var exception *amqp.Error
	var login *loginError
	switch {
	case errors.Is(err, errClosed):
		return sinks.ReasonClosed
	case errors.Is(err, errBlocked):
		return sinks.ReasonBroker
	case errors.Is(err, errNacked):
		return sinks.ReasonRefused
	case errors.Is(err, errUnroutable), errors.Is(err, errTwin):
		return sinks.ReasonUnroutable
	case errors.As(err, &login):
		return sinks.ReasonAuth
	case errors.As(err, &exception):
		return reasonOfCode(exception)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return sinks.ReasonTimeout
	default:
		return sinks.ReasonConnection
	}
}

func reasonOfCode(exception *amqp.Error) sinks.Reason {
	switch exception.Code {
	case amqp.AccessRefused, amqp.NotAllowed:
		return sinks.ReasonAuth
	case amqp.NotFound:
		return sinks.ReasonTopicMissing
	case amqp.PreconditionFailed, amqp.ContentTooLarge:
		return sinks.ReasonTooLarge
	case amqp.InternalError, amqp.ResourceError:
		return sinks.ReasonBroker
	}
	if exception.Server && exception.Recover {
		return sinks.ReasonRefused
	}
	return sinks.ReasonConnection
}

// endOf says why ctx ended.
func endOf(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), errClosed) {
		return errClosed
	}
	return ctx.Err()
}
