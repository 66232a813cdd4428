package poller

import (
	"errors"
	"slices"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/poller/batch"
	"github.com/delaybridge/delaybridge/internal/poller/routes"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// The shard looks for hanging messages now and then. A message hangs if it has no answer for
// that long although messages handed over later have one. It also hangs if nobody got an
// answer and the window or the shard is full: then messages of hanging routes may fill it, and
// no answer to others can come.
const (
	lookEvery    = 50 * time.Millisecond
	leastHanging = 500 * time.Millisecond
	hangingTimes = 4 // the usual time to an answer
)

// leftOut says that not all messages are published.
func (s *Shard) leftOut(b *batch.Batch, someAre bool) {
	switch {
	case len(s.toAsk) > 0:
		s.do.Topics(b, s.toAsk)
		s.toAsk = nil
	case !someAre && b.From != nil: // No answer of the sink will advance its route.
		s.routes.Passed(b.From)
	}
}

// open makes the body of a message clear, and decides about one that does not open. A key that
// is unknown may be added, so there is a route of that name: its messages wait there, and keep
// no others of their topics.
func (s *Shard) open(b *batch.Batch, i int, m *message.Message) bool {
	id, _ := m.SealedBy()
	err := message.UnknownKey(id)
	if s.queue.config.Sink.Open != nil {
		err = s.queue.config.Sink.Open(m)
	}
	if err == nil {
		return true
	}
	outcome := sinks.Failed(sinks.Permanent, sinks.ReasonBrokenSeal, err)
	if errors.Is(err, message.ErrUnknownKey) {
		outcome = sinks.Failed(sinks.Unavailable, sinks.ReasonUnknownKey, err)
		outcome.Route = sinks.Route(routes.KeyRoute + id)
	}
	s.decide(b, i, outcome)
	s.refund(&b.Messages[i], false)
	return false
}

// ToldTopics decides about those messages whose topics the queue does not take any more,
// and hands the others over. A topic that was added a moment ago is not known yet, though
// producers may use it: so Redis is asked before a message goes to the dead letters. Without an
// answer its route is closed, so that messages of a Key wait in their order (I15).
func (s *Shard) ToldTopics(now time.Duration, b *batch.Batch, indices []int, topics message.Topics, err error) {
	defer s.recovered(b)
	s.now = now
	known := s.queue.config.Topics.Known()
	taken := slices.DeleteFunc(indices, func(i int) bool {
		claimed := &b.Messages[i]
		if known.Check(claimed.Topic) == nil {
			return false
		}
		if err != nil {
			s.decide(b, i, sinks.Failed(sinks.Unavailable, sinks.ReasonUnknownTopic, err))
			s.refund(claimed, false)
			return true
		}
		refused := topics.Check(claimed.Topic)
		if refused != nil {
			s.refuse(b, i, batch.NotAllowed(claimed, refused))
		}
		return refused != nil
	})
	switch {
	case len(taken) > 0:
		s.publish(b, taken, true)
	case b.From != nil && err == nil:
		s.routes.Passed(b.From)
	}
}

// Confirmed says whether the claim is as durable as the queue asks. What is published
// before could come again without a mark, where a failover takes the claim back. A
// claim that is not confirmed goes back to wait; the shard takes nothing for a
// while, and then one message, until a claim is confirmed. Why, the store's owner says: it
// knows so of idle queues, too.
func (s *Shard) Confirmed(now time.Duration, b *batch.Batch, err error) {
	defer s.recovered(b)
	s.now = now
	s.flight.Confirmed(b, err == nil)
	s.planner.confirmed(now, err == nil)
	s.publish(b, b.Indices(batch.Held), false)
}

// park decides which messages of a claim go back to slots at once.
func (s *Shard) park(g *grant, claim *message.Claim, received time.Duration) (parked []routes.Parking) {
	from := g.probe
	switch {
	case from == nil:
		return s.routes.ParkAll(claim.Messages, received, claim.Now)
	case g.isUnsure || s.flight.KeepsSlot(claim):
		parked = s.routes.PutBack(from.Route, claim.Messages)
	case s.routes.IsOpening(from.Route):
		parked = s.routes.ParkAll(claim.Messages, received, claim.Now)
	default:
		parked = s.routes.ParkPaused(from.Route, claim.Messages)
		s.spend(claim.Messages, parked)
	}
	if len(parked) > 0 && len(parked) == len(claim.Messages) {
		s.routes.Passed(from.Route)
	}
	return parked
}

// spend takes those messages of a claim from their topics' rates that are not parked.
func (s *Shard) spend(messages []message.ClaimedMessage, parked []routes.Parking) {
	for i := range messages {
		if len(parked) > 0 && parked[0].Index == i {
			parked = parked[1:]
		} else if messages[i].Err == nil {
			s.quota.Spend(messages[i].Topic)
		}
	}
}

// goOn publishes messages that had to wait for earlier ones, or gives them back.
func (s *Shard) goOn(b *batch.Batch, ready, back []int) {
	defer s.recovered(b)
	s.giveBack(b, back)
	if len(ready) > 0 {
		s.publish(b, ready, false)
	}
}

// giveBack decides that messages were not handed over.
func (s *Shard) giveBack(b *batch.Batch, indices []int) {
	for _, i := range indices {
		s.decide(b, i, batch.HeldBack)
		s.refund(&b.Messages[i], true)
	}
}

// giveUp sends the messages of a route that was given up to the dead letters.
func (s *Shard) giveUp(b *batch.Batch) {
	defer s.recovered(b)
	cause, since := b.From.Cause()
	closedFor := s.planner.redisClock(s.now).Sub(since)
	for i := range b.Messages {
		s.refuse(b, i, batch.GiveUp(&b.Messages[i], cause, closedFor))
	}
}

// refuse decides about a message that the sink does not get.
func (s *Shard) refuse(b *batch.Batch, i int, verdict message.Verdict) {
	s.flight.Decide(b, i, verdict, nil, s.now)
	s.refund(&b.Messages[i], false)
}

// refund takes a message that the sink does not get out of what the rates count.
func (s *Shard) refund(claimed *message.ClaimedMessage, isHeldBack bool) {
	topic := claimed.Topic
	if claimed.Err != nil {
		topic = ""
	}
	s.quota.Refund(topic, isHeldBack)
}

// fail decides about messages that the broker has not answered by themselves.
func (s *Shard) fail(b *batch.Batch, c *batch.Publication, failed []*sinks.Report) {
	for _, report := range failed {
		i, outcome := c.Indices[report.Index], report.Outcome
		if batch.IsPanic(outcome) {
			b.Panic()
		}
		if batch.IsSignOfLife(outcome) && s.queue.config.Sink.Window.Answered(0, 0, 0) {
			s.log.Info("sink back", "event", "publish")
		}
		outcome.Whole = outcome.Whole || s.isCut && outcome.Reason == sinks.ReasonTimeout
		if outcome.Whole && !s.isCut && s.queue.config.Sink.Window.Down() {
			s.log.Warn("sink unavailable, messages wait", "event", "publish", "reason", string(outcome.Reason), "err", outcome.Err)
		}
		if b.IsHung(i) {
			s.flight.HangEnded(b, i, false, s.now)
		}
		s.decide(b, i, outcome)
	}
}

// judge records the verdict on a message that was not acknowledged. A panic concerns this
// message alone.
func (s *Shard) judge(b *batch.Batch, i int, outcome sinks.Outcome) {
	claimed, isDecided := &b.Messages[i], false
	defer func() {
		if cause := recover(); cause != nil {
			logPanic(s.log, "settle", cause)
			if !isDecided {
				s.flight.Decide(b, i, batch.MaybeOut(claimed), nil, s.now)
			}
		}
	}()
	verdict := s.policy.Retry.Decide(claimed, outcome, s.routes.IsDown(&claimed.Message), s.queue.chance())
	var in *routes.Route
	if verdict.Verb == message.VerbRelease {
		if batch.ConcernsRoute(outcome) && !s.isCut {
			in = s.routes.Fail(&claimed.Message, outcome, s.now, s.planner.redisClock(s.now))
		} else {
			in = s.routes.Park(outcome.Route, &claimed.Message)
		}
	}
	isDecided = true
	s.flight.Decide(b, i, verdict, in, s.now)
	s.reportOutcome(claimed, outcome)
}

// lookForHanging looks now and then for messages that hang, and gives back what waits behind
// routes that were closed since, or behind anything in a drain.
func (s *Shard) lookForHanging() {
	if s.now >= s.lookAt {
		s.lookAt = s.now + lookEvery
		for _, b := range s.flight.Live() {
			s.findHanging(b)
		}
		s.flight.GiveBack(false)
	}
	if s.planner.isDraining {
		s.flight.GiveBack(true)
	}
}

// findHanging closes the routes of messages that hang, so that no more of them
// follow, and takes them out of the window, so that they keep nobody else.
func (s *Shard) findHanging(b *batch.Batch) {
	pace, now := s.queue.config.Sink.Window.Pace(), s.queue.base.Add(s.now)
	limit := max(leastHanging, hangingTimes*pace.Took)
	isStuck := now.Sub(pace.LastAnswer) >= limit && (s.queue.config.Sink.Window.IsCrowded() || s.planner.isFull())
	hanging := b.Hanging(func(since time.Time) bool {
		return now.Sub(since) >= limit && (isStuck || pace.Overtaken.Sub(since) >= limit/2)
	})
	for _, i := range hanging {
		s.flight.Hang(b, i, s.routes.Hang(&b.Messages[i].Message, s.now, s.planner.redisClock(s.now)))
	}
}

// unsettled says that a settle had no answer. It is repeated for as long as the claim may still
// be ours: until the loop has reclaimed it, or the drain ends.
func (s *Shard) unsettled(b *batch.Batch, err error) {
	if !s.flight.RetrySettle(b, s.planner.isOver, s.now, s.queue.config.Claims.Timeout, s.queue.backoff) {
		s.log.Warn("claim left to be reclaimed", "event", "settle", "messages", b.Left(), "err", err)
	}
}

func (s *Shard) tellEpoch(epoch string) {
	if isNew := epoch != s.epoch; isNew && s.queue.config.Hooks.OnEpoch != nil {
		s.queue.config.Hooks.OnEpoch(epoch)
	}
	s.epoch = epoch
}

// reclaim calls the store to reclaim, if something is to be.
func (s *Shard) reclaim(which message.Reclaim, begins bool) {
	if begins {
		s.do.Reclaim(which)
	}
}

// Reclaimed takes the answer to a call that reclaims.
func (s *Shard) Reclaimed(now time.Duration, messages int, more bool, err error) {
	s.now = now
	s.planner.endCall()
	s.planner.noteReply("reclaim", err)
	s.reclaim(s.planner.reclaimed(now, messages, more, err))
}

// Reported says that OnNoLayout has returned.
func (s *Shard) Reported(now time.Duration) {
	s.now = now
	s.planner.endCall()
}

// Loaded takes what is parked in the shard.
func (s *Shard) Loaded(now time.Duration, parked []message.ParkedRoute, err error) {
	s.now = now
	s.planner.endCall()
	if s.planner.noteReply("claim", err); err != nil {
		s.planner.BackOff(now)
		return
	}
	s.routes.Load(parked, now, s.planner.markLoaded())
	s.planner.keepUp()
}

// Cut says that what is being published is cut short.
func (s *Shard) Cut() { s.isCut = true }

// End says that the store is not called any more, and that what it has in flight is lost.
func (s *Shard) End() {
	s.planner.end()
	s.flight.EndClaim() // No claim is waited for any more, nor what may be behind it.
	s.flight.Abandon()
}
