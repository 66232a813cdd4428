package batch

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

var (
	testRetry = Retry{Initial: time.Second, Max: 10 * time.Minute, Attempts: 25}
	errBroker = errors.New("broker trouble")
)

func TestDecide(t *testing.T) {
	t.Parallel()
	const middle = 0.5 // No jitter.
	type attempts = message.Attempts
	refused := sinks.Failed(sinks.Retryable, sinks.ReasonTopicMissing, errBroker)
	unknown := sinks.Failed(sinks.Unknown, sinks.ReasonTimeout, errBroker)
	nacked := sinks.Failed(sinks.Unknown, sinks.ReasonRefused, errBroker)
	nacked.OfRoute = true
	tests := []struct {
		name    string
		before  attempts
		err     error
		outcome sinks.Outcome
		isDown  bool
		want    message.Verdict
	}{
		{
			name: "permanent", outcome: sinks.Failed(sinks.Permanent, sinks.ReasonTooLarge, errBroker),
			want: message.Verdict{
				Verb: message.VerbDeadLetter, Attempts: attempts{Failures: 1, Begun: 1},
				Reason: "permanent too_large: broker trouble",
			},
		},
		{
			name: "refused", before: attempts{Failures: 2, Begun: 4, MaybeOut: 1, Unknowns: 3}, outcome: refused,
			want: message.Verdict{
				Verb: message.VerbRetry, Delay: 4 * time.Second, Attempts: attempts{Failures: 3, Begun: 5, MaybeOut: 1},
			},
		},
		{
			name: "refused for the last time", before: attempts{Failures: 24, Begun: 24}, outcome: refused,
			want: message.Verdict{
				Verb: message.VerbDeadLetter, Attempts: attempts{Failures: 25, Begun: 25},
				Reason: "attempts used up: retryable topic_missing: broker trouble",
			},
		},
		{
			name: "unknown among others", before: attempts{Failures: 1, Begun: 1}, outcome: unknown,
			want: message.Verdict{
				Verb: message.VerbRelease, Published: true, Attempts: attempts{Failures: 1, Begun: 2, MaybeOut: 1, Unknowns: 1},
			},
		},
		{
			name: "fifth unknown in a row", before: attempts{Begun: 4, MaybeOut: 4, Unknowns: 4}, outcome: unknown,
			want: message.Verdict{
				Verb: message.VerbRelease, Published: true, Attempts: attempts{Failures: 1, Begun: 5, MaybeOut: 5},
			},
		},
		{
			name: "fifth unknown, attempts used up", before: attempts{Failures: 24, Unknowns: 4}, outcome: unknown,
			want: message.Verdict{
				Verb: message.VerbDeadLetter, Published: true, Attempts: attempts{Failures: 25, Begun: 1, MaybeOut: 1},
				Reason: "attempts used up: unknown timeout: broker trouble",
			},
		},
		{
			name: "unknown like all of the sink", before: attempts{Unknowns: 4}, outcome: sinks.FailedWhole(sinks.Unknown, sinks.ReasonConnection, errBroker),
			want: message.Verdict{
				Verb: message.VerbRelease, Published: true, Attempts: attempts{Begun: 1, MaybeOut: 1, Unknowns: 4},
			},
		},
		{
			name: "unknown like all of the route", before: attempts{Unknowns: 4}, outcome: unknown, isDown: true,
			want: message.Verdict{
				Verb: message.VerbRelease, Published: true, Attempts: attempts{Begun: 1, MaybeOut: 1, Unknowns: 4},
			},
		},
		{
			name: "refused by the route, which proves nothing", before: attempts{Failures: 24, Begun: 30, MaybeOut: 6, Unknowns: 4}, outcome: nacked,
			want: message.Verdict{
				Verb: message.VerbRelease, Published: true, Attempts: attempts{Failures: 24, Begun: 31, MaybeOut: 7, Unknowns: 4},
			},
		},
		{
			name: "unavailable", before: attempts{Failures: 3, Begun: 3, Unknowns: 2}, outcome: sinks.Failed(sinks.Unavailable, sinks.ReasonConnection, errBroker),
			want: message.Verdict{Verb: message.VerbRelease, Attempts: attempts{Failures: 3, Begun: 3, Unknowns: 2}},
		},
		{
			name: "a panic of the message alone", outcome: sinks.Failed(sinks.Unknown, reasonPanicAlone, errBroker),
			want: message.Verdict{
				Verb: message.VerbRetry, Delay: time.Second, Published: true, Attempts: attempts{Failures: 1, Begun: 1, MaybeOut: 1},
			},
		},
		{
			name: "undecodable", err: fmt.Errorf("%w: cut short", message.ErrUndecodable), outcome: HeldBack,
			want: message.Verdict{Verb: message.VerbDeadLetter, Reason: "decode: undecodable message: cut short"},
		},
		{
			name: "missing body", err: message.ErrMissingBody, outcome: HeldBack,
			want: message.Verdict{Verb: message.VerbDeadLetter, Reason: "missing body"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			claimed := message.ClaimedMessage{Attempts: test.before, Err: test.err}
			assert.Equal(t, test.want, testRetry.Decide(&claimed, test.outcome, test.isDown, middle))
		})
	}
}

func TestReasonIsBounded(t *testing.T) {
	t.Parallel()
	outcome := sinks.Failed(sinks.Permanent, sinks.ReasonInvalid, errors.New(strings.Repeat("ü", maxReason)))
	verdict := testRetry.Decide(&message.ClaimedMessage{}, outcome, false, 0)
	assert.LessOrEqual(t, len(verdict.Reason), maxReason)
	assert.True(t, strings.HasSuffix(verdict.Reason, "ü"), "cut at a character")
}

func TestNotAllowed(t *testing.T) {
	t.Parallel()
	m := message.ClaimedMessage{Message: message.Message{Topic: "old"}, Attempts: message.Attempts{MaybeOut: 1}}
	assert.Equal(t, message.Verdict{
		Verb: message.VerbDeadLetter, Reason: `not allowed: topic "old": the queue takes only orders.*`, Attempts: m.Attempts, Published: true,
	}, NotAllowed(&m, message.Topics{"orders.*"}.Check(m.Topic)))
	m.Attempts.MaybeOut = 0
	assert.False(t, NotAllowed(&m, errBroker).Published)
}

func TestGiveUp(t *testing.T) {
	t.Parallel()
	cause := sinks.Failed(sinks.Unavailable, sinks.ReasonTopicMissing, errBroker)
	verdict := func(m message.ClaimedMessage) message.Verdict { return GiveUp(&m, cause, time.Hour) }
	want := message.Verdict{Verb: message.VerbDeadLetter, Reason: "route unavailable for 1h0m0s: unavailable topic_missing: broker trouble"}
	assert.Equal(t, want, verdict(message.ClaimedMessage{}))
	want.Attempts.MaybeOut, want.Published = 1, true
	assert.Equal(t, want, verdict(message.ClaimedMessage{Attempts: want.Attempts}))
	assert.Equal(t, "missing body", verdict(message.ClaimedMessage{Err: message.ErrMissingBody}).Reason)
}

// What could not be decided has begun, and may be out. It checks I11.
func TestMaybeOut(t *testing.T) {
	t.Parallel()
	m := message.ClaimedMessage{Attempts: message.Attempts{Failures: 2, Begun: 3, MaybeOut: 1}}
	assert.Equal(t, message.Verdict{
		Verb: message.VerbRelease, Attempts: message.Attempts{Failures: 2, Begun: 4, MaybeOut: 2}, Published: true,
	}, MaybeOut(&m))
}
