package poller

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// unknownsPerFailure is how many unknown outcomes in a row, while others
// succeeded, count as one refusal.
const unknownsPerFailure = 5

// maxReason is the longest reason of a dead letter, in bytes.
const maxReason = 512

// The waits between two calls of the store that had no answer. The limit is
// part of how long a shard stands still after a failover, so it is short. It
// costs little: the store's client soon dials a dead Redis once a second only.
const (
	redisBackoffInitial = 50 * time.Millisecond
	redisBackoffLimit   = 500 * time.Millisecond
)

// answered reports whether the broker dealt with the message by itself: if it
// did with one, the sink is up.
func answered(outcome sinks.Outcome) bool {
	switch outcome.Class {
	case sinks.Acknowledged, sinks.Permanent, sinks.Retryable:
		return true
	case sinks.Unknown, sinks.Unavailable:
		return false
	default:
		return false
	}
}

// decide says how to settle one message. mates is whether the sink answered
// for any message of the batch: if for none, an unknown outcome is the sink's
// fault and not the message's. random is in [0, 1).
func (r Retry) decide(claimed *message.Claimed, outcome sinks.Outcome, mates bool, random float64) message.Verdict {
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
		return r.unknown(attempts, outcome, mates, random)
	default:
		return r.unknown(attempts, outcome, mates, random)
	}
}

func (r Retry) unknown(attempts message.Attempts, outcome sinks.Outcome, mates bool, random float64) message.Verdict {
	attempts.Begun++
	attempts.MaybeOut++
	// A panic of a message that was published alone is that message's fault.
	alone := outcome.Reason == reasonPanicAlone
	if mates && !alone {
		attempts.Unknowns++
	}
	if alone || attempts.Unknowns >= unknownsPerFailure {
		return r.refused(attempts, true, outcome, random)
	}
	return message.Verdict{Verb: message.VerbRelease, Attempts: attempts, Published: true}
}

// refused counts a failure and tries again later, or gives the message up.
func (r Retry) refused(attempts message.Attempts, published bool, outcome sinks.Outcome, random float64) message.Verdict {
	attempts.Failures++
	attempts.Unknowns = 0
	if attempts.Failures >= r.Attempts {
		return deadLetter(attempts, published, "attempts used up: "+describe(outcome))
	}
	return message.Verdict{
		Verb:      message.VerbRetry,
		Delay:     exponential(r.Initial, r.Max, attempts.Failures, random),
		Attempts:  attempts,
		Published: published,
	}
}

func deadLetter(attempts message.Attempts, published bool, reason string) message.Verdict {
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "")
	}
	return message.Verdict{Verb: message.VerbDeadLetter, Attempts: attempts, Published: published, Reason: reason}
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

// settle ends the batch's claim. It repeats an unanswered call for as long as
// the claim may still be ours: until the loop has reclaimed it, or the drain ends.
func (s *shard) settle(b *batch) {
	s.judge(b)
	settlement := message.Settlement{Claim: b.claim, Verdicts: b.verdicts}
	pause := backoff{initial: redisBackoffInitial, limit: redisBackoffLimit}
	for began := s.now(); ; settlement.Repeated = true {
		stale, err := s.callSettle(settlement)
		if err == nil {
			s.redisAnswered()
			b.again = waitAgain(b.verdicts, s.now())
			s.settled(b, stale)
			if stale || settlement.Repeated {
				s.tellAcks(b)
			}
			return
		}
		s.redisSilent("settle", err)
		// Where only settling fails, the claim must end by itself some day.
		if s.now()-began > s.ClaimTimeout {
			b.forsaken.Store(true)
		}
		if b.lost.Load() || !sleep(s.callCtx, pause.next()) {
			s.log.Warn("claim left to be reclaimed", "event", "settle", "messages", len(b.verdicts), "err", err)
			s.tellAcks(b)
			return
		}
	}
}

// waitAgain is the instant from which a message that went back waits for a
// claim; without one, far away.
func waitAgain(verdicts []message.Verdict, now time.Duration) time.Duration {
	again := now + noneWaits
	for i := range verdicts {
		switch verdicts[i].Verb {
		case message.VerbRelease:
			return now
		case message.VerbRetry:
			again = min(again, now+verdicts[i].Delay)
		case message.VerbAck, message.VerbDeadLetter:
		}
	}
	return again
}

func (s *shard) callSettle(settlement message.Settlement) (stale bool, err error) {
	defer recovered(s.log, "settle", &err)
	ctx, cancel := context.WithTimeout(s.callCtx, s.callTimeout())
	defer cancel()
	return s.Store.Settle(ctx, s.index, settlement)
}

// judge decides about every message of the batch, and notes the Keys of which
// messages stay unpublished. A panic concerns one message: the others go on.
func (s *shard) judge(b *batch) {
	b.verdicts = make([]message.Verdict, len(b.claim.Messages))
	for i := 0; i < len(b.verdicts); {
		i = s.judgeFrom(b, i)
	}
}

func (s *shard) judgeFrom(b *batch, first int) (next int) {
	next = first
	defer func() {
		if cause := recover(); cause != nil {
			logPanic(s.log, "settle", cause)
			s.release(b, next)
			next++
		}
	}()
	for ; next < len(b.verdicts); next++ {
		claimed, outcome := &b.claim.Messages[next], b.outcome(next)
		if outcome.Class == sinks.Acknowledged && claimed.Err == nil {
			b.verdicts[next] = message.Verdict{Verb: message.VerbAck, Attempts: claimed.Attempts, Published: true}
			s.Observer.ObserveLateness(s.Queue, lateness(&claimed.Message, b.publishedAt))
			continue
		}
		b.verdicts[next] = s.Retry.decide(claimed, outcome, b.answered, rand.Float64())
		if claimed.Key != "" && claimed.Err == nil && !answered(outcome) {
			b.leave(claimed.Key)
		}
		s.report(claimed, outcome)
	}
	return next
}

// release is the verdict where deciding or reporting panicked: it keeps what was
// decided, else it assumes that a copy may be out.
func (s *shard) release(b *batch, i int) {
	claimed, verdict := &b.claim.Messages[i], &b.verdicts[i]
	if verdict.Verb != message.VerbRelease || verdict.Attempts != (message.Attempts{}) {
		return
	}
	attempts := claimed.Attempts
	attempts.Begun++
	attempts.MaybeOut++
	*verdict = message.Verdict{Verb: message.VerbRelease, Attempts: attempts, Published: true}
	if claimed.Key != "" {
		b.leave(claimed.Key)
	}
}

// lateness is how long after its due time, or after it was scheduled if that
// was later, the message was acknowledged.
func lateness(m *message.Message, acknowledged time.Time) time.Duration {
	from := m.DueAt
	if m.ScheduledAt.After(from) {
		from = m.ScheduledAt
	}
	return max(0, acknowledged.Sub(from))
}

// tellAcks hands over the outbox messages that the broker has acknowledged.
func (s *shard) tellAcks(b *batch) {
	if s.OnLateAcks == nil {
		return
	}
	var acked []message.Claimed
	for i := range b.verdicts {
		if m := &b.claim.Messages[i]; b.verdicts[i].Verb == message.VerbAck && message.IsOutboxToken(m.Token) {
			acked = append(acked, *m)
		}
	}
	if len(acked) > 0 {
		s.OnLateAcks(acked)
	}
}

// settled reports what the settle did.
func (s *shard) settled(b *batch, stale bool) {
	if stale {
		s.Observer.Stale(s.Queue)
		s.log.Warn("settled too late, the claim had ended", "event", "settle", "messages", len(b.verdicts))
		return
	}
	var by [message.VerbKeep + 1]int
	suspected := 0
	for i := range b.verdicts {
		by[b.verdicts[i].Verb]++
		if b.verdicts[i].Verb == message.VerbAck && b.claim.Messages[i].Attempts.MaybeOut > 0 {
			suspected++
		}
		if b.verdicts[i].Verb == message.VerbDeadLetter || b.verdicts[i].Verb == message.VerbRetry {
			s.logRefusal(&b.claim.Messages[i], &b.verdicts[i], b.outcome(i))
		}
	}
	s.Observer.Settled(s.Queue, by[message.VerbAck], by[message.VerbRetry], by[message.VerbDeadLetter],
		by[message.VerbRelease], by[message.VerbPark], suspected)
}
