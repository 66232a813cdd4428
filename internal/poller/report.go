package poller

import (
	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// Settled counts what was settled.
type Settled struct {
	Published, Retried, DeadLettered, Released, Parked int
	// Suspected are those of Published of which an earlier copy may be out.
	Suspected int
}

// report counts and says what a settle did.
func (d *docket) report(stale bool) {
	if stale {
		d.Observer.Stale(d.Queue)
		d.log.Warn("settled too late, the claim had ended", "event", "settle", "messages", len(d.decided))
		return
	}
	var counts Settled
	for _, i := range d.decided {
		claimed, verdict := &d.b.claim.Messages[i], &d.verdicts[i]
		switch verdict.Verb {
		case message.VerbAck:
			counts.Published++
			if claimed.Attempts.MaybeOut > 0 {
				counts.Suspected++
			}
		case message.VerbRetry:
			counts.Retried++
		case message.VerbDeadLetter:
			counts.DeadLettered++
			d.log.Warn("message dead-lettered", "event", "settle", "id", claimed.ID, "topic", claimed.Topic,
				"attempt", claimed.Attempts.Begun+1, "reason", verdict.Reason)
		case message.VerbPark:
			counts.Parked++
		case message.VerbRelease:
			counts.Released++
		case message.VerbKeep:
		}
	}
	d.Observer.Settled(d.Queue, counts)
}

// reportOutcome counts a message that was not acknowledged.
func (s *services) reportOutcome(claimed *message.Claimed, outcome sinks.Outcome) {
	switch {
	case claimed.Err != nil:
		s.Observer.DecodeError(s.Queue)
		return
	case outcome.Reason == reasonHeldBack:
		return
	}
	s.Observer.PublishFailure(s.Queue, outcome.Class.String(), string(outcome.Reason))
	if outcome.Reason == sinks.ReasonTopicMissing || outcome.Reason == sinks.ReasonUnroutable {
		s.Observer.SinkMissing(s.SinkName, claimed.Topic)
	}
	if outcome.Class == sinks.Retryable && s.sayNow(claimed.Topic+"\x00"+string(outcome.Reason)) {
		s.log.Warn("message refused, tried again later; said once a minute", "event", "settle", "id", claimed.ID,
			"topic", claimed.Topic, "attempt", claimed.Attempts.Begun+1, "reason", string(outcome.Reason), "err", outcome.Err)
	}
}
