package poller

import (
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// decide records the verdict on a message. A panic concerns this message alone.
func (s *shard) decide(b *batch, i int, outcome sinks.Outcome) {
	open := b.open
	defer func() {
		if cause := recover(); cause != nil {
			logPanic(s.log, "settle", cause)
			if b.open == open { // It was not decided: a copy may be out.
				attempts := b.claim.Messages[i].Attempts
				attempts.Begun++
				attempts.MaybeOut++
				s.note(b, i, message.Verdict{Verb: message.VerbRelease, Attempts: attempts, Published: true}, nil)
			}
		}
	}()
	claimed := &b.claim.Messages[i]
	isDown, random := false, 0.0
	if outcome.Class != sinks.Acknowledged { // Nearly all are, and need neither.
		isDown, random = s.routes.isDown(s.config.Sink.Route(&claimed.Message), claimed.Topic), s.chance()
	}
	verdict := s.policy.Load().Retry.decide(claimed, outcome, isDown, random)
	if s.config.Places {
		verdict.Place = outcome.Place.String()
	}
	var in *route
	if verdict.Verb == message.VerbRelease {
		in = s.slotFor(&claimed.Message, outcome)
	}
	s.note(b, i, verdict, in)
	if outcome.Class != sinks.Acknowledged || claimed.Err != nil {
		s.reportOutcome(claimed, outcome)
	}
}

// slotFor returns the closed route to whose slot a message goes back; nil where
// it waits with what is due.
func (s *shard) slotFor(m *message.Message, outcome sinks.Outcome) *route {
	name := outcome.Route
	if name == "" {
		name = s.config.Sink.Route(m)
	}
	if concernsRoute(outcome) && !s.isCut {
		return s.routes.fail(name, m.Topic, outcome, s.now, s.redis.clock(s.now))
	}
	return s.routes.park(name, m.Topic)
}

// note records a verdict; in is the route whose slot the message goes to. Those that wait
// for the message's chain learn of it.
func (s *shard) note(b *batch, i int, verdict message.Verdict, in *route) {
	b.note(i, verdict, in, s.now)
	if in == nil && verdict.Verb == message.VerbRelease {
		s.returns.begin(b.claim.Messages[i].DueAt)
	}
	if told := s.order.set(b, i, fateOf(&b.verdicts[i]), s.asking.isPending()); told != nil {
		s.told = append(s.told, told)
	}
}

// settle writes what is decided.
func (s *shard) settle(b *batch) {
	b.settle(s.parks(b), s.now, s.backoff(redisBackoffInitial, redisBackoffLimit))
	b.settling.isCalled = true
	s.do.settle(b)
}

// parks is what Redis is to know of the routes whose messages are parked.
func (s *shard) parks(b *batch) []message.ParkedRoute {
	if b.parkedIn == nil {
		return nil
	}
	used := make(map[*route]bool)
	for _, i := range b.decided {
		if r := b.parkedIn[i]; r != nil {
			used[r] = true
		}
	}
	return s.routes.tell(used)
}

// settled takes the answer to a settle. A call without an answer is repeated for as long
// as the claim may still be ours: until the loop has reclaimed it, or the drain ends.
func (s *shard) settled(now time.Duration, b *batch, stale bool, err error) {
	defer s.recovered(b)
	s.now = now
	w := &b.settling
	w.isCalled = false
	s.heard("settle", err)
	if err == nil {
		s.report(b, w.indices, stale)
		if stale || w.settlement.Repeated {
			s.tellAcks(b, w.indices)
		}
		s.close(b, w.indices, !stale)
		b.settling = settling{}
		return
	}
	// Where only settling fails, the claim must end by itself some day.
	if now-w.began > s.config.Claims.Timeout {
		b.forsaken = true
	}
	if b.lost || s.isOver {
		s.log.Warn("claim left to be reclaimed", "event", "settle", "messages", b.left, "err", err)
		s.abandon(b)
		return
	}
	w.againAt = now + w.pause.Next()
}

// abandon leaves a claim to be reclaimed: it is not ours to settle any more.
func (s *shard) abandon(b *batch) {
	b.abandoned = true
	b.decided = append(b.settling.indices, b.decided...)
	b.settling = settling{}
}

// close ends messages that are decided, in Redis too where isDone.
func (s *shard) close(b *batch, indices []int, isDone bool) {
	for _, i := range indices {
		verdict := &b.verdicts[i]
		switch verdict.Verb {
		case message.VerbPark:
			s.routes.parked(b.parkedIn[i], 1)
		case message.VerbRelease:
			s.returns.end(s.now)
		case message.VerbRetry:
			if isDone {
				s.returns.claimable = min(s.returns.claimable, s.now+verdict.Delay)
			}
		case message.VerbAck, message.VerbDeadLetter, message.VerbDrop, message.VerbKeep:
		}
		if fateOf(verdict) == fateBroken {
			s.order.back(b, i, s.asking.isPending())
		}
	}
	b.end(indices)
	if b.route != nil {
		s.routes.settled(b.route, len(indices))
	}
	s.config.Observer.AddInFlight(s.config.Queue, -len(indices))
	s.turn.isCrowded, s.times.pausedUntil, s.times.limitedUntil = false, 0, 0 // Ask again.
}

// finish ends a batch, and gives up what a claim that was lost has left.
func (s *shard) finish(b *batch) {
	b.window.end()
	if b.left > 0 {
		s.tellAcks(b, b.decided)
		s.close(b, b.decided, false)
		for _, p := range b.parked { // Nobody puts them into their slots any more.
			if !b.ended[p.index] {
				s.routes.parked(p.route, 1)
			}
		}
		if b.left > 0 { // What a panic has left without a verdict.
			s.config.Observer.AddInFlight(s.config.Queue, -b.left)
			if b.route != nil {
				s.routes.settled(b.route, b.left)
			}
		}
		s.order.forget(b)
	}
}

// tellAcks hands over the outbox messages that the broker has acknowledged.
func (s *shard) tellAcks(b *batch, indices []int) {
	if s.config.Hooks.OnLateAcks == nil {
		return
	}
	var acked []message.Claimed
	for _, i := range indices {
		if m := &b.claim.Messages[i]; b.verdicts[i].Verb == message.VerbAck && message.IsOutboxToken(m.Token) {
			acked = append(acked, *m)
		}
	}
	if len(acked) > 0 {
		s.config.Hooks.OnLateAcks(acked)
	}
}
