package redis

import (
	"context"
	"errors"
	"fmt"
	"os"

	goredis "github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/rediserr"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

var (
	errNoAnswer = errors.New("no answer")
	errMissing  = errors.New("there is no such stream")
)

// tooLargeError is returned for a body that the server does not accept in a command.
type tooLargeError struct{ size, most int }

func (e *tooLargeError) Error() string {
	return fmt.Sprintf("the body has %d bytes, the server takes %d (proto-max-bulk-len)", e.size, e.most)
}

// refusals are the codes of replies by which Redis says that it has not run the command.
var refusals = map[string]sinks.Outcome{
	"WRONGTYPE":   {Class: sinks.Unavailable, Reason: sinks.ReasonRefused}, // The key is something else.
	"NOPERM":      {Class: sinks.Unavailable, Reason: sinks.ReasonAuth},
	"NOAUTH":      {Class: sinks.Unavailable, Reason: sinks.ReasonAuth, Whole: true},
	"WRONGPASS":   {Class: sinks.Unavailable, Reason: sinks.ReasonAuth, Whole: true},
	"OOM":         {Class: sinks.Unavailable, Reason: sinks.ReasonFull, Whole: true},
	"READONLY":    {Class: sinks.Unavailable, Reason: sinks.ReasonBroker, Whole: true},
	"LOADING":     {Class: sinks.Unavailable, Reason: sinks.ReasonBroker, Whole: true},
	"BUSY":        {Class: sinks.Unavailable, Reason: sinks.ReasonBroker, Whole: true},
	"MASTERDOWN":  {Class: sinks.Unavailable, Reason: sinks.ReasonBroker, Whole: true},
	"MISCONF":     {Class: sinks.Unavailable, Reason: sinks.ReasonBroker, Whole: true},
	"NOREPLICAS":  {Class: sinks.Unavailable, Reason: sinks.ReasonBroker, Whole: true},
	"CLUSTERDOWN": {Class: sinks.Unavailable, Reason: sinks.ReasonBroker},
	"TRYAGAIN":    {Class: sinks.Unavailable, Reason: sinks.ReasonBroker},
	"MOVED":       {Class: sinks.Unavailable, Reason: sinks.ReasonBroker},
	"ASK":         {Class: sinks.Unavailable, Reason: sinks.ReasonBroker},
}

// classify says what an error means for the message of its command; sent says whether a
// connection may have got any of it. It is the only place that does. A reply with a code
// that is not listed proves nothing: a proxy may have made it after Redis had run the
// command.
func (s *Sink) classify(err error, sent bool) sinks.Outcome {
	outcome := sinks.Outcome{Class: sinks.Unavailable, Reason: why(err), Whole: true}
	var tooLarge *tooLargeError
	var invalid *message.InvalidError
	if sent {
		outcome.Class = sinks.Unknown
	}
	switch known, isKnown := refusals[code(err)]; {
	case s.root.Err() != nil:
		outcome.Reason = sinks.ReasonClosed
	case errors.As(err, &tooLarge):
		outcome = sinks.Outcome{Class: sinks.Permanent, Reason: sinks.ReasonTooLarge}
	case errors.As(err, &invalid):
		outcome = sinks.Outcome{Class: sinks.Permanent, Reason: sinks.ReasonInvalid}
	case errors.Is(err, goredis.Nil): // NOMKSTREAM
		outcome, err = sinks.Outcome{Class: sinks.Unavailable, Reason: sinks.ReasonTopicMissing}, errMissing
	case isKnown:
		outcome = known
	case sent && isReply(err):
		outcome = sinks.Outcome{Class: sinks.Unknown, Reason: sinks.ReasonRefused}
	}
	outcome.Err = err
	outcome.Whole = outcome.Whole && !s.isCluster // Its nodes fail by themselves.
	return outcome
}

// isOfMessage reports whether an error concerns one message alone.
func isOfMessage(err error) bool {
	return errors.As(err, new(*tooLargeError))
}

// isReply reports whether the error is a reply of the server, or of a proxy in its name.
func isReply(err error) bool { return errors.As(err, new(goredis.Error)) }

// code is the first word of an error reply; empty if it is none.
func code(err error) string {
	var reply goredis.Error
	if !errors.As(err, &reply) {
		return ""
	}
	return rediserr.ReplyCode(reply.Error())
}

// why names the reason of an error that is not about one message.
func why(err error) sinks.Reason {
	switch {
	case errors.Is(err, goredis.ErrClosed):
		return sinks.ReasonClosed
	case tlsclient.IsTrust(err), goredis.IsAuthError(err), goredis.IsPermissionError(err):
		return sinks.ReasonAuth
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, goredis.ErrPoolTimeout):
		return sinks.ReasonTimeout
	default:
		return sinks.ReasonConnection
	}
}
