package poller

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// call is one call of the sink: some of a batch's messages, in due order.
type call struct {
	indices     []int // in the batch; nil is all of it
	outcomes    *sinks.Outcomes
	hasReturned atomic.Bool
	began       time.Time
	size, left  int
	// late are those that hang, and the routes that were closed for it.
	late map[int]*route
}

// at is the place in the batch of the n-th message of the call.
func (c *call) at(n int) int {
	if c.indices == nil {
		return n
	}
	return c.indices[n]
}

// begin decides what is not to be published of a batch, and publishes what need not wait:
// once its claim is confirmed, where it has to be.
func (s *shard) begin(b *batch) {
	defer s.recovered(b)
	if b.isGivenUp {
		s.giveUpAll(b)
		return
	}
	for _, p := range b.parked {
		s.note(b, p.index, message.Verdict{Attempts: b.claim.Messages[p.index].Attempts}, p.route)
	}
	if b.confirming {
		s.do.confirm(b)
		return
	}
	s.publishFirst(b)
}

// confirmed says whether the claim is as durable as the queue asks. What is published
// before could come again without a mark, where a failover takes the claim back. A
// claim that is not confirmed goes back to wait; the shard takes nothing for a
// while, and then one message, until a claim is confirmed. Why, the store's owner says: it
// knows so of idle queues, too.
func (s *shard) confirmed(now time.Duration, b *batch, err error) {
	defer s.recovered(b)
	s.now = now
	b.confirming, b.unconfirmed = false, err != nil
	switch {
	case !b.unconfirmed:
		s.unconfirmedPause.Reset()
	case now >= s.times.unconfirmedUntil:
		s.times.unconfirmedUntil = now + s.unconfirmedPause.Next()
	}
	s.publishFirst(b)
}

// publishFirst publishes the messages of a batch that need not wait for earlier ones.
func (s *shard) publishFirst(b *batch) {
	all := b.claim.Messages
	aside := make([]bool, len(all))
	for _, p := range b.parked {
		aside[p.index] = true
	}
	var behind []int
	for _, part := range b.behind {
		behind = b.segments.appendTo(behind[:0], part)
		for _, i := range behind {
			aside[i] = true
		}
	}
	var unreadable []int
	ready := make([]int, 0, len(all))
	for i := range all {
		switch {
		case aside[i]:
		case all[i].Err != nil:
			unreadable = append(unreadable, i)
		default:
			ready = append(ready, i)
		}
	}
	s.skip(b, unreadable)
	for _, i := range unreadable {
		s.decide(b, i, sinks.Outcome{})
	}
	switch {
	case !s.mayPublish(b):
		s.giveBack(b, ready)
	case len(ready) == len(all):
		s.publish(b, nil)
	case len(ready) > 0:
		s.publish(b, ready)
	}
	if len(b.told) > 0 {
		s.told = append(s.told, b)
	}
}

// giveUpAll sends the messages of a route that was given up to the dead letters.
func (s *shard) giveUpAll(b *batch) {
	closedFor := s.redis.clock(s.now).Sub(b.route.since)
	all := b.claim.Messages
	indices := make([]int, len(all))
	for i := range all {
		indices[i] = i
	}
	s.skip(b, indices)
	for i := range all {
		s.note(b, i, giveUp(&all[i], b.route.cause, closedFor), nil)
	}
}

// skip takes messages out of the window, and of what the rates count, that the sink does
// not get.
func (s *shard) skip(b *batch, indices []int) { s.leaveOut(b, indices, false) }

func (s *shard) leaveOut(b *batch, indices []int, isHeldBack bool) {
	if len(indices) == 0 {
		return
	}
	bytes := 0
	for _, i := range indices {
		bytes += weight(&b.claim.Messages[i].Message)
	}
	b.window.gone(len(indices), bytes)
	s.quota.refund(b.claim.Messages, indices, isHeldBack)
}

// giveBack decides that messages were not handed over.
func (s *shard) giveBack(b *batch, indices []int) {
	s.leaveOut(b, indices, true)
	for _, i := range indices {
		s.decide(b, i, heldBack)
	}
}

// unblock publishes the messages of segments that waited for those in front of them, or
// gives them back.
func (s *shard) unblock() {
	for len(s.told) > 0 {
		b := s.told[len(s.told)-1]
		s.told = s.told[:len(s.told)-1]
		if b.confirming || b.open == 0 { // It comes again once it is confirmed.
			continue
		}
		s.hearOf(b)
	}
}

// hearOf acts on what became of the messages that a batch has waited for.
func (s *shard) hearOf(b *batch) {
	defer s.recovered(b)
	passages, may := b.told, s.mayPublish(b)
	b.told = nil
	var ready, back []int
	for _, p := range passages {
		switch {
		case !p.segment.isBehind:
			continue
		case p.broken, !may, s.isClosed(p.segment):
			back = b.segments.appendTo(back, p.segment)
		default:
			ready = b.segments.appendTo(ready, p.segment)
		}
		p.segment.isBehind = false
	}
	s.giveBack(b, back)
	if len(ready) > 0 {
		slices.Sort(ready) // In due order.
		s.publish(b, ready)
	}
}

// giveBackBehind gives back what waits for earlier messages, of segments that are hopeless.
func (s *shard) giveBackBehind(isHopeless func(*segment) bool) {
	for _, b := range s.live {
		isTold := len(b.told) > 0
		for _, part := range b.behind {
			if part.isBehind && isHopeless(part) {
				b.told = append(b.told, passage{part, true})
			}
		}
		if !isTold && len(b.told) > 0 {
			s.told = append(s.told, b)
		}
	}
}

// isClosed reports whether the route of a segment's messages was closed since the
// claim. What was claimed from a slot is a probe, and goes out all the same.
func (s *shard) isClosed(part *segment) bool {
	m := &part.batch.claim.Messages[part.first].Message
	return part.batch.route == nil && s.routes.isClosed(s.config.Sink.Route(m), m.Topic)
}

// mayPublish reports whether a publish may start: none does after the lease or
// the claim's deadline, for order (I15), in a drain, or of a claim that is not confirmed.
func (s *shard) mayPublish(b *batch) bool { return !s.isDraining && b.mayPublish(s.now) }

// publish hands messages to the sink that are not too late, whose topics the queue takes,
// and whose bodies open: all of them where indices is nil.
func (s *shard) publish(b *batch, indices []int) {
	indices, none := s.inTime(b, indices)
	if none {
		return
	}
	if topics := s.config.Topics; topics != nil && refusesAny(topics.Known(), b.claim.Messages) {
		s.do.topics(b, indices) // One may have been added a moment ago.
		return
	}
	s.handOver(b, indices)
}

// handOver gives messages to the sink whose bodies open.
func (s *shard) handOver(b *batch, indices []int) {
	messages, indices := s.open(b, indices)
	if len(messages) == 0 {
		return
	}
	c := &call{
		indices: indices, outcomes: sinks.NewOutcomesTo(len(messages), s.changed), began: time.Now(),
		size: len(messages), left: len(messages),
	}
	b.calls = append(b.calls, c)
	s.do.publish(c, messages)
}

// inTime decides about those messages that are too late, and returns the others; see
// [shard.weed].
func (s *shard) inTime(b *batch, indices []int) (rest []int, none bool) {
	late := s.policy.Load().Late
	if !mayBeLate(late, b.claim.Messages) {
		return indices, false
	}
	now := s.redis.clock(s.now)
	return s.weed(b, indices, func(claimed *message.Claimed) (message.Verdict, bool) {
		return claimed.LateOr(late).Judge(claimed, now)
	})
}

// mayBeLate reports whether the queue or one of the messages says how late it may be.
func mayBeLate(queues message.Late, all []message.Claimed) bool {
	if queues.Then != "" && queues.Then != message.LatePublish {
		return true
	}
	for i := range all {
		if headers := all[i].Headers; len(headers) > 0 {
			if _, says := headers[message.HeaderLate]; says {
				return true
			}
		}
	}
	return false
}

// weed decides about those messages that are not to be published, as judge says, and
// returns the others; indices may be nil for all, and so may be what it returns. none says
// that no message is left.
func (s *shard) weed(b *batch, indices []int, judge func(*message.Claimed) (message.Verdict, bool)) (rest []int, none bool) {
	all := b.claim.Messages
	if indices == nil {
		indices = make([]int, len(all))
		for i := range all {
			indices[i] = i
		}
	}
	var out []int
	for _, i := range indices {
		if verdict, isOut := judge(&all[i]); isOut {
			s.note(b, i, verdict, nil)
			out = append(out, i)
		} else {
			rest = append(rest, i)
		}
	}
	s.skip(b, out)
	if len(rest) == 0 && b.route != nil {
		s.routes.passed(b.route)
	}
	return rest, len(rest) == 0
}

// findHanging closes the routes of messages that hang, so that no more of them
// follow, and takes them out of the window, so that they keep nobody else.
func (s *shard) findHanging(b *batch) {
	if b.open == b.hung {
		return
	}
	window := s.config.Sink.Window
	pace := window.Pace()
	limit := max(leastHanging, hangingTimes*pace.Took)
	now := time.Now()
	isStuck := now.Sub(pace.Answered) >= limit && window.IsCrowded()
	for _, c := range b.calls {
		if c.left == 0 || now.Sub(c.began) < limit || pace.Overtaken.Sub(c.began) < limit/2 && !isStuck {
			continue
		}
		for n := range c.size {
			if _, known := c.outcomes.At(n); known || c.late[n] != nil {
				continue
			}
			m := &b.claim.Messages[c.at(n)].Message
			if c.late == nil {
				c.late = make(map[int]*route)
			}
			b.hung++
			c.late[n] = s.routes.hang(s.config.Sink.Route(m), m.Topic, s.now, s.redis.clock(s.now))
			b.window.gone(1, weight(m))
		}
	}
}

// takeAll takes the outcomes that have come for a batch.
func (s *shard) takeAll(b *batch) {
	defer s.recovered(b)
	for _, c := range b.calls {
		if c.left > 0 {
			s.take(b, c)
		}
	}
}

// take decides about the messages of a call whose outcomes have come. The
// answers come first: whether the broker has answered anything decides what a
// missing answer means.
func (s *shard) take(b *batch, c *call) {
	s.fresh = c.outcomes.Take(s.fresh[:0])
	fresh := s.fresh
	if len(fresh) == 0 {
		return
	}
	c.left -= len(fresh)
	var failed []int
	a := tally{}
	for _, n := range fresh {
		i, report := c.at(n), c.outcomes.Taken(n)
		s.hear(b, c, n, report.Outcome)
		s.observe(&b.claim.Messages[i], c.began, report)
		if !isAnswer(report.Outcome) {
			failed = append(failed, n)
			continue
		}
		a.add(c, n, &b.claim.Messages[i].Message, report)
		s.decide(b, i, report.Outcome)
	}
	s.flush(b, &a)
	for _, n := range failed {
		s.failed(b, c, n)
	}
}

// hear ends the wait for a message that hung.
func (s *shard) hear(b *batch, c *call, n int, outcome sinks.Outcome) {
	if late := c.late[n]; late != nil {
		b.hung--
		s.routes.heard(late, isAnswer(outcome), s.now)
	}
}

// tally sums up answers for the window.
type tally struct {
	messages, bytes int
	took            time.Duration
	late            int // answers to messages that have left the window
}

func (a *tally) add(c *call, n int, m *message.Message, report *sinks.Report) {
	if c.late[n] != nil {
		a.late++
		return
	}
	a.messages++
	a.bytes += weight(m)
	a.took += report.At.Sub(c.began)
}

// flush tells the window, and the route that was probed, of the answers.
func (s *shard) flush(b *batch, a *tally) {
	if a.messages+a.late == 0 {
		return
	}
	s.sinkAnswered(b.window.answered(a.messages, a.bytes, a.took/time.Duration(max(1, a.messages))))
	b.answered = true
	if b.route != nil && !b.succeeded {
		b.succeeded = true
		s.routes.succeed(b.route)
	}
}

func (s *shard) failed(b *batch, c *call, n int) {
	i := c.at(n)
	outcome := c.outcomes.Taken(n).Outcome
	if c.late[n] == nil {
		b.window.gone(1, weight(&b.claim.Messages[i].Message))
	}
	b.panicked = b.panicked || isPanic(outcome)
	if isSignOfLife(outcome) {
		s.sinkAnswered(b.window.answered(0, 0, 0))
	}
	outcome.Whole = outcome.Whole || s.isCut && outcome.Reason == sinks.ReasonTimeout
	if outcome.Whole && !s.isCut && b.window.share.Down() {
		s.log.Warn("sink unavailable, messages wait", "event", "publish", "reason", string(outcome.Reason), "err", outcome.Err)
	}
	s.decide(b, i, outcome)
}
