package batch

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// unknownsPerFailure is how many unknown outcomes in a row, while others of the
// route succeeded, count as one refusal.
const unknownsPerFailure = 5

// maxReason is the longest reason of a dead letter, in bytes.
const maxReason = 512

// Reasons of outcomes that the poller makes itself.
const (
	// ReasonHeldBack: not handed to the sink, to keep order or because the lease
	// or the process ended. Nobody's failure.
	ReasonHeldBack sinks.Reason = "held_back"
	// reasonPanic: the sink panicked.
	reasonPanic sinks.Reason = "panic"
	// reasonPanicAlone: the sink panicked on this message alone.
	reasonPanicAlone sinks.Reason = "panic_alone"
	// reasonNoOutcome: the sink returned without an outcome.
	reasonNoOutcome sinks.Reason = "no_outcome"
)

var (
	// HeldBack is the outcome of what is not handed to the sink.
	HeldBack     = sinks.Failed(sinks.Unavailable, ReasonHeldBack, nil)
	errNoOutcome = errors.New("the sink reported no outcome")
)

// IsSignOfLife reports whether the broker said so itself, if only to refuse.
func IsSignOfLife(outcome sinks.Outcome) bool {
	switch outcome.Reason {
	case sinks.ReasonFull, sinks.ReasonTopicMissing, sinks.ReasonUnroutable, sinks.ReasonAuth, sinks.ReasonThrottled,
		sinks.ReasonRefused, sinks.ReasonBroker:
		return (outcome.Class == sinks.Unavailable || outcome.OfRoute) && !outcome.Whole
	default:
		return outcome.IsAnswer()
	}
}

// IsPanic reports whether it was the sink itself that failed.
func IsPanic(outcome sinks.Outcome) bool {
	return outcome.Reason == reasonPanic || outcome.Reason == reasonPanicAlone
}

// ConcernsRoute reports whether the message's route is to be closed for it.
func ConcernsRoute(outcome sinks.Outcome) bool {
	return !outcome.IsAnswer() && !outcome.Whole && outcome.Reason != ReasonHeldBack && !IsPanic(outcome)
}

// Retry says how refused messages are tried again.
type Retry struct {
	// Initial is the wait after the first refusal; it doubles with each, up to Max.
	Initial, Max time.Duration
	// Attempts is how many refusals make a dead letter.
	Attempts int
}

// Decide says how to settle one message that was not acknowledged. A message that goes back to wait is
// released; the caller parks it instead where its route is closed. isDown says that
// the route takes nothing from anybody. random is in [0, 1).
//
//	outcome          | of      | route is down | refusals | unknowns → verdict     | refusals | copies
//	undecodable      | *       | *             | *        | *        → dead letter | +0       | +0
//	permanent        | *       | *             | *        | *        → dead letter | +1       | +0
//	unavailable      | *       | *             | *        | *        → release     | +0       | +0
//	retryable        | *       | *             | fewer    | *        → retry       | +1       | +0
//	retryable        | *       | *             | last     | *        → dead letter | +1       | +0
//	failed halfway   | *       | *             | fewer    | *        → retry       | +1       | +1
//	failed halfway   | *       | *             | last     | *        → dead letter | +1       | +1
//	unknown          | message | no            | fewer    | last     → release     | +1       | +1
//	unknown          | message | no            | last     | last     → dead letter | +1       | +1
//	unknown          | *       | *             | *        | *        → release     | +0       | +1
//	panic of one     | *       | *             | fewer    | *        → retry       | +1       | +1
//	panic of one     | *       | *             | last     | *        → dead letter | +1       | +1
//	panic of several | *       | *             | *        | *        → release     | +0       | +1
//
// Failed halfway is a retryable one of which a copy may be out. Last is the refusal that uses up the attempts, and the unknown outcome that makes a refusal.
func (r Retry) Decide(claimed *message.ClaimedMessage, outcome sinks.Outcome, isDown bool, random float64) message.Verdict {
	if claimed.Err != nil {
		return deadLetter(claimed.Attempts, false, undecodable(claimed.Err))
	}
	attempts := claimed.Attempts
	switch outcome.Class {
	case sinks.Permanent:
		attempts.Begun++
		attempts.Failures++
		attempts.Unknowns = 0
		return deadLetter(attempts, false, describe(outcome))
	case sinks.Retryable:
		attempts.Begun++
		if outcome.MaybeOut {
			attempts.MaybeOut++
		}
		return r.refused(attempts, outcome.MaybeOut, outcome, random)
	case sinks.Unavailable:
		return message.Verdict{Verb: message.VerbRelease, Attempts: attempts}
	case sinks.Unknown, sinks.Acknowledged:
		return r.unknown(attempts, outcome, isDown, random)
	default:
		return r.unknown(attempts, outcome, isDown, random)
	}
}

// unknown counts the copy that may be out. If it was not the whole sink or the
// route that failed, several in a row count as one refusal: but the message keeps
// its place, since others of its Key must not pass it. What the broker itself says
// to be of the route counts as none, however often.
func (r Retry) unknown(attempts message.Attempts, outcome sinks.Outcome, isDown bool, random float64) message.Verdict {
	attempts.Begun++
	attempts.MaybeOut++
	if outcome.Reason == reasonPanicAlone { // That is the message's fault.
		return r.refused(attempts, true, outcome, random)
	}
	if ConcernsRoute(outcome) && !outcome.OfRoute && !isDown {
		attempts.Unknowns++
	}
	if attempts.Unknowns >= unknownsPerFailure {
		attempts.Unknowns = 0
		attempts.Failures++
		if attempts.Failures >= r.Attempts {
			return deadLetter(attempts, true, usedUp(outcome))
		}
	}
	return message.Verdict{Verb: message.VerbRelease, Attempts: attempts, Published: true}
}

// refused counts a failure and tries again later, or gives the message up.
func (r Retry) refused(attempts message.Attempts, published bool, outcome sinks.Outcome, random float64) message.Verdict {
	attempts.Failures++
	attempts.Unknowns = 0
	if attempts.Failures >= r.Attempts {
		return deadLetter(attempts, published, usedUp(outcome))
	}
	return message.Verdict{
		Verb:      message.VerbRetry,
		Delay:     wait.Exponential(r.Initial, r.Max, attempts.Failures, random),
		Attempts:  attempts,
		Published: published,
	}
}

func usedUp(outcome sinks.Outcome) string { return "attempts used up: " + describe(outcome) }

func deadLetter(attempts message.Attempts, published bool, reason string) message.Verdict {
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "")
	}
	return message.Verdict{Verb: message.VerbDeadLetter, Attempts: attempts, Published: published, Reason: reason}
}

// NotAllowed is the verdict on a message of a topic that the queue does not take.
func NotAllowed(claimed *message.ClaimedMessage, why error) message.Verdict {
	return deadLetter(claimed.Attempts, claimed.Attempts.MaybeOut > 0, "not allowed: "+why.Error())
}

// GiveUp is the verdict on a message of a route that was closed for too long.
func GiveUp(claimed *message.ClaimedMessage, cause sinks.Outcome, closedFor time.Duration) message.Verdict {
	if claimed.Err != nil {
		return deadLetter(claimed.Attempts, false, undecodable(claimed.Err))
	}
	reason := fmt.Sprintf("route unavailable for %s: %s", closedFor.Round(time.Second), describe(cause))
	return deadLetter(claimed.Attempts, claimed.Attempts.MaybeOut > 0, reason)
}

func undecodable(err error) string {
	if errors.Is(err, message.ErrMissingBody) {
		return message.ErrMissingBody.Error()
	}
	return "decode: " + err.Error()
}

// describe is an outcome for people: class, reason, cause.
func describe(outcome sinks.Outcome) string {
	text := outcome.Class.String()
	if outcome.Reason != "" {
		text += " " + string(outcome.Reason)
	}
	if outcome.Err != nil {
		text += ": " + outcome.Err.Error()
	}
	return text
}

// noOutcome is the outcome of what a sink has left out, or of what made it panic, with so many
// messages at once.
func noOutcome(panicked error, messages int) sinks.Outcome {
	switch {
	case panicked == nil:
		return sinks.Failed(sinks.Unknown, reasonNoOutcome, errNoOutcome)
	case messages == 1:
		return sinks.Failed(sinks.Unknown, reasonPanicAlone, panicked)
	}
	return sinks.Failed(sinks.Unknown, reasonPanic, panicked)
}

// MaybeOut is the verdict on a message that could not be decided: a copy may be out.
func MaybeOut(claimed *message.ClaimedMessage) message.Verdict {
	attempts := claimed.Attempts
	attempts.Begun++
	attempts.MaybeOut++
	return message.Verdict{Verb: message.VerbRelease, Attempts: attempts, Published: true}
}
