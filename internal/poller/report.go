package poller

import (
	"slices"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/poller/batch"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// report counts and says what a settle did.
func (s *Shard) report(b *batch.Batch, indices []int, stale bool) {
	if stale {
		s.queue.config.Observer.Stale(s.queue.config.Queue)
		s.log.Warn("settled too late, the claim had ended", "event", "settle", "messages", len(indices))
		return
	}
	var n [message.VerbDrop + 1]int
	suspected := 0 // copies that are out, or may be, while an earlier one may be
	for _, i := range indices {
		claimed, verdict := b.At(i), b.Verdict(i)
		if n[verdict.Verb]++; verdict.Published && claimed.Attempts.MaybeOut > 0 {
			suspected++
		}
		if verdict.Verb != message.VerbAck {
			s.say(claimed, verdict)
		}
	}
	if dropped := n[message.VerbDrop]; dropped > 0 {
		s.sayDropped(b, indices, dropped)
	}
	s.queue.config.Observer.Settled(s.queue.config.Queue, n[message.VerbAck], n[message.VerbRetry], n[message.VerbDeadLetter],
		n[message.VerbRelease], n[message.VerbPark], suspected)
}

func (s *Shard) say(claimed *message.Claimed, verdict *message.Verdict) {
	if verdict.Verb == message.VerbDeadLetter {
		s.log.Warn("message dead-lettered", "event", "settle", "id", claimed.ID, "topic", claimed.Topic,
			"attempt", claimed.Attempts.Begun+1, "reason", verdict.Reason)
	}
}

// sayDropped tells of the first, which is the latest. Redis counts them.
func (s *Shard) sayDropped(b *batch.Batch, indices []int, dropped int) {
	m := b.At(indices[slices.IndexFunc(indices, func(i int) bool { return b.Verdict(i).Verb == message.VerbDrop })])
	late := s.asking.redisClock(s.now).Sub(m.DueAt)
	s.log.Warn("messages dropped, they were too late", "event", "settle", "messages", dropped,
		"limit", message.Brief(m.LateOr(s.policy.Late).After), "late", message.Brief(late), "id", m.ID, "topic", m.Topic)
}

// observe tells what the sink has said of a message that it was given, and measures how
// late one is that was acknowledged.
func (s *Shard) observe(claimed *message.Claimed, began time.Time, report *sinks.Report) {
	isAcked := report.Class == sinks.Acknowledged
	if !isAcked && s.queue.config.Hooks.OnPublished == nil {
		return
	}
	defer recovered(s.log, "settle", nil)
	late := batch.Lateness(&claimed.Message, s.asking.redisClock(report.At.Sub(s.queue.base)))
	if isAcked {
		s.queue.config.Observer.ObserveLateness(s.queue.config.Queue, late)
	}
	if s.queue.config.Hooks.OnPublished != nil {
		s.queue.config.Hooks.OnPublished(claimed, began, report, late)
	}
}

// reportOutcome counts a message that was not acknowledged.
func (s *Shard) reportOutcome(claimed *message.Claimed, outcome sinks.Outcome) {
	switch {
	case claimed.Err != nil:
		s.queue.config.Observer.DecodeError(s.queue.config.Queue)
		return
	case outcome.Reason == batch.ReasonHeldBack:
		return
	}
	s.queue.config.Observer.PublishFailure(s.queue.config.Queue, outcome.Class.String(), string(outcome.Reason))
	if outcome.Reason == sinks.ReasonTopicMissing || outcome.Reason == sinks.ReasonUnroutable {
		s.queue.config.Observer.SinkMissing(s.queue.config.Sink.Name, claimed.Topic)
	}
	if outcome.Class == sinks.Retryable && s.queue.sayNow(claimed.Topic+"\x00"+string(outcome.Reason)) {
		s.log.Warn("message refused, tried again later; said once a minute", "event", "settle", "id", claimed.ID,
			"topic", claimed.Topic, "attempt", claimed.Attempts.Begun+1, "reason", string(outcome.Reason), "err", outcome.Err)
	}
}

// tellAcks hands over the outbox messages that the broker has acknowledged.
func (s *Shard) tellAcks(b *batch.Batch, indices []int) {
	if s.queue.config.Hooks.OnLateAcks == nil {
		return
	}
	var acked []message.Claimed
	for _, i := range indices {
		if m := b.At(i); b.Verdict(i).Verb == message.VerbAck && message.IsOutboxToken(m.Token) {
			acked = append(acked, *m)
		}
	}
	if len(acked) > 0 {
		s.queue.config.Hooks.OnLateAcks(acked)
	}
}
