package poller

import (
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// settled counts what was settled.
type settled struct {
	published, retried, deadLettered, released, parked int
	dropped                                            int
	suspected                                          int // copies that are out, or may be, while an earlier one may be
}

// report counts and says what a settle did.
func (s *shard) report(b *batch, indices []int, stale bool) {
	if stale {
		s.config.Observer.Stale(s.config.Queue)
		s.log.Warn("settled too late, the claim had ended", "event", "settle", "messages", len(indices))
		return
	}
	var n settled
	var dropped *message.Message // the first, which is the latest
	for _, i := range indices {
		claimed, verdict := &b.claim.Messages[i], &b.verdicts[i]
		if verdict.Published && claimed.Attempts.MaybeOut > 0 {
			n.suspected++
		}
		switch verdict.Verb {
		case message.VerbAck:
			n.published++
		case message.VerbRetry:
			n.retried++
		case message.VerbDeadLetter:
			n.deadLettered++
			s.log.Warn("message dead-lettered", "event", "settle", "id", claimed.ID, "topic", claimed.Topic,
				"attempt", claimed.Attempts.Begun+1, "reason", verdict.Reason)
		case message.VerbDrop:
			if n.dropped++; dropped == nil {
				dropped = &claimed.Message
			}
		case message.VerbPark:
			n.parked++
		case message.VerbRelease:
			n.released++
		case message.VerbKeep:
		}
	}
	if dropped != nil { // Redis counts them.
		late := s.redis.clock(s.now).Sub(dropped.DueAt)
		s.log.Warn("messages dropped, they were too late", "event", "settle", "messages", n.dropped,
			"limit", message.Brief(dropped.LateOr(s.policy.Load().Late).After), "late", message.Brief(late), "id", dropped.ID, "topic", dropped.Topic)
	}
	s.config.Observer.Settled(s.config.Queue, n.published, n.retried, n.deadLettered, n.released, n.parked, n.suspected)
}

// observe tells what the sink has said of a message that it was given, and measures how
// late one is that was acknowledged.
func (s *shard) observe(claimed *message.Claimed, began time.Time, report *sinks.Report) {
	isAcked := report.Class == sinks.Acknowledged
	if !isAcked && s.config.Hooks.OnPublished == nil {
		return
	}
	defer recovered(s.log, "settle", nil)
	late := lateness(&claimed.Message, s.redis.clock(report.At.Sub(s.clock.base)))
	if isAcked {
		s.config.Observer.ObserveLateness(s.config.Queue, late)
	}
	if s.config.Hooks.OnPublished != nil {
		s.config.Hooks.OnPublished(claimed, began, report, late)
	}
}

// reportOutcome counts a message that was not acknowledged.
func (s *shard) reportOutcome(claimed *message.Claimed, outcome sinks.Outcome) {
	switch {
	case claimed.Err != nil:
		s.config.Observer.DecodeError(s.config.Queue)
		return
	case outcome.Reason == reasonHeldBack:
		return
	}
	s.config.Observer.PublishFailure(s.config.Queue, outcome.Class.String(), string(outcome.Reason))
	if outcome.Reason == sinks.ReasonTopicMissing || outcome.Reason == sinks.ReasonUnroutable {
		s.config.Observer.SinkMissing(s.config.Sink.Name, claimed.Topic)
	}
	if outcome.Class == sinks.Retryable && s.news.troubles.sayNow(claimed.Topic+"\x00"+string(outcome.Reason)) {
		s.log.Warn("message refused, tried again later; said once a minute", "event", "settle", "id", claimed.ID,
			"topic", claimed.Topic, "attempt", claimed.Attempts.Begun+1, "reason", string(outcome.Reason), "err", outcome.Err)
	}
}
