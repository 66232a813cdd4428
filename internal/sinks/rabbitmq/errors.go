package rabbitmq

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/redial"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

var (
	errClosed       = redial.ErrClosed
	errBlocked      = errors.New("the broker blocks publishers: it is short of memory or disk")
	errNacked       = errors.New("the broker takes no responsibility (nack): a queue of the topic is full or has failed, and any of them may have a copy")
	errUnroutable   = errors.New("no queue is bound for this topic")
	errTwin         = errors.New("a message of the topic was returned as unroutable, maybe this one")
	errLost         = errors.New("the connection was lost")
	errNotConnected = errors.New("no connection within the publish timeout")
	errNoChannel    = errors.New("all channels were in use for other topics for longer than the publish timeout")
	errTooMany      = errors.New("the broker allows our user no more channels")
	errNoNumber     = errors.New("the broker allows no more channels")
	errMalformed    = errors.New("malformed AMQP frame")
	errSilent       = errors.New("the broker did not answer within the publish timeout")
)

// loginError says that the login could not even be tried.
type loginError struct{ cause error }

func (e *loginError) Error() string { return fmt.Sprintf("login: %v", e.cause) }
func (e *loginError) Unwrap() error { return e.cause }

// stage is how far a message had come when an error ended its publishing; the
// same error means different things for it.
type stage int

const (
	// notHanded: no part of the message can have reached the broker.
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
	outcome := sinks.Outcome{
		Class: sinks.Unknown, Reason: reasonOf(err), Err: err, Whole: isWhole(err), OfRoute: errors.Is(err, errNacked),
	}
	switch {
	case errors.Is(err, errUnroutable), s == notHanded:
		outcome.Class = sinks.Unavailable
	case errors.Is(err, errNacked), errors.Is(err, errTwin):
	case s == alone && isOfChannel(err):
		outcome.Class = classOfRefusal(outcome.Reason)
	}
	return outcome
}

// classOfRefusal is the class of a message over which the broker closed the channel.
func classOfRefusal(reason sinks.Reason) sinks.Class {
	switch reason {
	case sinks.ReasonTooLarge:
		return sinks.Permanent
	case sinks.ReasonAuth, sinks.ReasonTopicMissing:
		return sinks.Unavailable
	default:
		return sinks.Retryable
	}
}

// isOfChannel reports whether the broker closed a channel with this error, and
// left the connection as it was.
func isOfChannel(err error) bool {
	var exception *amqp.Error
	return errors.As(err, &exception) && exception.Server && exception.Recover
}

// isLimit reports whether the broker closed the connection with what it says where our
// user has as many channels as it may.
func isLimit(exception *amqp.Error) bool {
	return exception != nil && exception.Server && exception.Code == amqp.NotAllowed
}

// isWhole reports whether the error concerns the whole broker and not one route.
func isWhole(err error) bool {
	for _, ofRoute := range []error{
		errNacked, errUnroutable, errTwin, errSilent, errNoChannel, context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, ofRoute) {
			return false
		}
	}
	return !isOfChannel(err)
}

func reasonOf(err error) sinks.Reason {
	var exception *amqp.Error
	var login *loginError
	switch {
	case errors.Is(err, errClosed):
		return sinks.ReasonClosed
	case errors.Is(err, errBlocked):
		return sinks.ReasonBroker
	case errors.Is(err, errNacked), errors.Is(err, errTooMany):
		return sinks.ReasonRefused
	case errors.Is(err, errUnroutable), errors.Is(err, errTwin):
		return sinks.ReasonUnroutable
	case errors.As(err, &login), tlsclient.IsTrust(err):
		return sinks.ReasonAuth
	case errors.As(err, &exception):
		return reasonOfCode(exception)
	case errors.Is(err, errSilent), errors.Is(err, errNoChannel), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
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
