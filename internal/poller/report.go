package poller

import (
	"slices"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/poller/batch"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// say logs the messages that were not acknowledged.
func (s *Shard) say(b *batch.Batch, indices []int, n *batch.Tally) {
	for _, i := range indices {
		if claimed, verdict := &b.Messages[i], b.Verdict(i); verdict.Verb == message.VerbDeadLetter {
			s.log.Warn("message dead-lettered", "event", "settle", "id", claimed.ID, "topic", claimed.Topic,
				"attempt", claimed.Attempts.Begun+1, "reason", verdict.Reason)
		}
	}
	if dropped := n.Verbs[message.VerbDrop]; dropped > 0 {
		s.sayDropped(b, indices, dropped)
	}
}

// sayStale logs a settle that came too late.
func (s *Shard) sayStale(indices []int) {
	s.queue.config.Observer.Stale(s.queue.config.Queue)
	s.log.Warn("settled too late, the claim had ended", "event", "settle", "messages", len(indices))
}

// sayDropped logs the first dropped message, which is the latest. Redis counts them.
func (s *Shard) sayDropped(b *batch.Batch, indices []int, dropped int) {
	m := &b.Messages[indices[slices.IndexFunc(indices, func(i int) bool { return b.Verdict(i).Verb == message.VerbDrop })]]
	late := s.planner.redisClock(s.now).Sub(m.DueAt)
	s.log.Warn("messages dropped, they were too late", "event", "settle", "messages", dropped,
		"limit", message.Brief(m.LateOr(s.policy.Late).After), "late", message.Brief(late), "id", m.ID, "topic", m.Topic)
}

// reportOutcome counts a message that was not acknowledged.
func (s *Shard) reportOutcome(claimed *message.ClaimedMessage, outcome sinks.Outcome) {
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
		s.log.Warn("message refused, will be tried again; logged once a minute", "event", "settle", "id", claimed.ID,
			"topic", claimed.Topic, "attempt", claimed.Attempts.Begun+1, "reason", string(outcome.Reason), "err", outcome.Err)
	}
}

// tellAcks hands over the outbox messages that the broker has acknowledged.
func (s *Shard) tellAcks(b *batch.Batch, indices []int) {
	if s.queue.config.Hooks.OnLateAcks == nil {
		return
	}
	var acked []message.ClaimedMessage
	for _, i := range indices {
		if m := &b.Messages[i]; b.Verdict(i).Verb == message.VerbAck && message.IsOutboxToken(m.Token) {
			acked = append(acked, *m)
		}
	}
	if len(acked) > 0 {
		s.queue.config.Hooks.OnLateAcks(acked)
	}
}
