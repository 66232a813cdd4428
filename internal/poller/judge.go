package poller

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
	// reasonHeldBack: not handed to the sink, to keep order or because the lease
	// or the process ended. Nobody's failure.
	reasonHeldBack sinks.Reason = "held_back"
	// reasonPanic: the sink panicked.
	reasonPanic sinks.Reason = "panic"
	// reasonPanicAlone: the sink panicked on this message alone.
	reasonPanicAlone sinks.Reason = "panic_alone"
	// reasonNoOutcome: the sink returned without an outcome.
	reasonNoOutcome sinks.Reason = "no_outcome"
)

var (
	heldBack     = sinks.Failed(sinks.Unavailable, reasonHeldBack, nil)
	errNoOutcome = errors.New("the sink reported no outcome")
	errHangs     = errors.New("a message was not answered for long")
)

// isAnswer reports whether the broker dealt with the message by itself.
func isAnswer(outcome sinks.Outcome) bool {
	switch outcome.Class {
	case sinks.Acknowledged, sinks.Permanent, sinks.Retryable:
		return true
	case sinks.Unknown, sinks.Unavailable:
		return false
	default:
		return false
	}
}

// isSignOfLife reports whether the broker said so itself, if only to refuse.
func isSignOfLife(outcome sinks.Outcome) bool {
	switch outcome.Reason {
	case sinks.ReasonFull, sinks.ReasonTopicMissing, sinks.ReasonUnroutable, sinks.ReasonAuth, sinks.ReasonThrottled,
		sinks.ReasonRefused, sinks.ReasonBroker:
		return (outcome.Class == sinks.Unavailable || outcome.OfRoute) && !outcome.Whole
	default:
		return isAnswer(outcome)
	}
}

// isPanic reports whether it was the sink itself that failed.
func isPanic(outcome sinks.Outcome) bool {
	return outcome.Reason == reasonPanic || outcome.Reason == reasonPanicAlone
}

// concernsRoute reports whether the message's route is to be closed for it.
func concernsRoute(outcome sinks.Outcome) bool {
	return !isAnswer(outcome) && !outcome.Whole && outcome.Reason != reasonHeldBack && !isPanic(outcome)
}

// decide says how to settle one message. A message that goes back to wait is
// released; the caller parks it instead where its route is closed. isDown says that
// the route takes nothing from anybody. random is in [0, 1).
func (r Retry) decide(claimed *message.Claimed, outcome sinks.Outcome, isDown bool, random float64) message.Verdict {
	if claimed.Err != nil {
		return deadLetter(claimed.Attempts, false, undecodable(claimed.Err))
	}
	attempts := claimed.Attempts
	switch outcome.Class {
	case sinks.Acknowledged:
		return message.Verdict{Verb: message.VerbAck, Attempts: attempts, Published: true}
	case sinks.Permanent:
		attempts.Begun++
		attempts.Failures++
		attempts.Unknowns = 0
		return deadLetter(attempts, false, describe(outcome))
	case sinks.Retryable:
		attempts.Begun++
		return r.refused(attempts, false, outcome, random)
	case sinks.Unavailable:
		return message.Verdict{Verb: message.VerbRelease, Attempts: attempts}
	case sinks.Unknown:
		return r.unknown(attempts, outcome, isDown, random)
	default:
		return r.unknown(attempts, outcome, isDown, random)
	}
}

// unknown counts the copy that may be out. Where it was not the whole sink or the
// route that failed, several in a row count as one refusal: but the message keeps
// its place, since others of its Key must not pass it. What the broker itself says
// to be of the route counts as none, however often.
func (r Retry) unknown(attempts message.Attempts, outcome sinks.Outcome, isDown bool, random float64) message.Verdict {
	attempts.Begun++
	attempts.MaybeOut++
	if outcome.Reason == reasonPanicAlone { // That is the message's fault.
		return r.refused(attempts, true, outcome, random)
	}
	if concernsRoute(outcome) && !outcome.OfRoute && !isDown {
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

// giveUp is the verdict on a message of a route that was closed for too long.
func giveUp(claimed *message.Claimed, cause sinks.Outcome, closedFor time.Duration) message.Verdict {
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

// fateOf is what a verdict means for later messages of the Key.
func fateOf(verdict *message.Verdict) fate {
	if verdict.Verb == message.VerbRelease || verdict.Verb == message.VerbPark {
		return fateBroken
	}
	return fatePassed
}

// lateness is how long after its promised due time, or after it was scheduled if
// that was later, the message was acknowledged.
func lateness(m *message.Message, acknowledged time.Time) time.Duration {
	from := m.DueAt
	if m.ScheduledAt.After(from) {
		from = m.ScheduledAt
	}
	return max(0, acknowledged.Sub(from))
}
