package poller

import (
	"log/slog"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/poller/batch"
	"github.com/delaybridge/delaybridge/internal/poller/rate"
	"github.com/delaybridge/delaybridge/internal/poller/routes"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// Shard is the machine that publishes one shard's messages: it takes events and says what
// to do ([Calls]). It starts no goroutine, never waits and reads no clock: now is the time
// of the last event. It is not safe for concurrent use; its driver calls it.
type Shard struct {
	queue *Queue
	index int
	log   *slog.Logger
	do    Calls
	// changed, of 1, is signalled when an outcome has come.
	changed chan struct{}
	now     time.Duration
	isCut   bool // what was being published was cut short

	policy *Policy // what is heeded of the queue's
	paused *pauses // likewise
	epoch  string  // the last one reported

	*planner // of the claims: many of a shard's events are for it alone
	routes   *routes.Table
	flight   *batch.Flight
	quota    *rate.Quota
	turn     *turn
	toAsk    []int         // messages whose topics nobody knows, while they are admitted
	lookAt   time.Duration // when to look for messages that hang
}

// Calls are the calls that a shard makes through its driver. Each begins something and
// returns at once; the shard gets the result as an event.
type Calls interface {
	Claim(request message.ClaimRequest)                       // Claimed
	Reclaim(which message.Reclaim)                            // Reclaimed
	Parked()                                                  // Loaded
	NoLayout()                                                // Reported
	Confirm(b *batch.Batch)                                   // Confirmed
	Topics(b *batch.Batch, indices []int)                     // ToldTopics
	Publish(c *batch.Publication, messages []message.Message) // its Outcomes, and Return
	Settle(b *batch.Batch, settlement message.Settlement)     // Settled
}

// Wakes are how others tell a shard's driver that it is to be told something.
type Wakes struct {
	// Outcomes, of 1, receives when an outcome has come: then it is to step.
	Outcomes chan struct{}
	// Room is called when the window may have room: then it is Woken. Rates is called when
	// the rates may allow more: then it is Allowed. They must not block, and are called from
	// any goroutine.
	Room, Rates func()
}

// NewShard makes a shard that has not begun; number is the first claim number.
func NewShard(q *Queue, index int, number uint64, do Calls, wakes Wakes) *Shard {
	s := &Shard{queue: q, index: index, log: q.config.Logger.With("shard", index), do: do, changed: wakes.Outcomes, policy: q.policy.Load()}
	s.quota = q.rates.Quota(index, wakes.Rates)
	s.turn = newTurn(q.config.Sink.Window.Join(q.config.Queue, wakes.Room))
	s.routes = routes.New(routes.Config{
		Log: s.log, Slots: q.slots, Name: q.config.Sink.Route, SayNow: q.sayNow, Suspects: &q.suspects, Quota: s.quota, Backoff: q.backoff,
	})
	s.routes.Follow(s.policy.ParkPatience, len(s.policy.Rates.Topics) > 0)
	s.flight = batch.NewFlight(s.routes)
	s.planner = newPlanner(q, s.log, number, s.flight, s.routes, s.quota, s.turn)
	return s
}

// Step does all the work that is due: it takes new outcomes, settles, and makes the next
// call of the loop if it is time. It returns when to step again if nothing happens
// before; more is false when the drain is over.
func (s *Shard) Step(now time.Duration) (next time.Duration, more bool) {
	s.now = now
	s.heed()
	next = s.seeThrough()
	next = min(next, s.turn.hold(now, s.flight.Load()))
	for _, b := range s.flight.Prune() {
		if b.Left() > 0 {
			s.forget(b)
		}
		s.planner.learn(b)
	}
	switch {
	case len(s.flight.Live()) == 0 && s.planner.isDone():
		return 0, false
	case s.planner.isUnderWay || s.planner.isOver:
		return next, true
	}
	do, at := s.planner.next(now)
	switch do {
	case actionParked:
		s.do.Parked()
	case actionClaim:
		s.do.Claim(*s.planner.pending)
		next = min(next, s.turn.roomUntil)
	case actionNone:
		next = min(next, at)
	}
	return next, true
}

// heed takes what operators have changed since the last turn.
func (s *Shard) heed() {
	if policy := s.queue.policy.Load(); policy != s.policy {
		s.policy = policy
		s.routes.Follow(policy.ParkPatience, len(policy.Rates.Topics) > 0)
	}
	s.quota.Holds(!s.planner.isDraining && s.planner.isMine(s.now))
	if paused := s.queue.paused.Load(); paused != s.paused {
		s.paused = paused
		s.planner.pause(paused.isAll)
		s.routes.Pause(paused.topics)
	}
}

// seeThrough does what is to be done for the batches in flight, and returns when to come
// again.
func (s *Shard) seeThrough() (next time.Duration) {
	next = wait.Never
	for _, b := range s.flight.Live() {
		for _, c := range b.Publications() {
			s.take(b, c)
		}
	}
	if s.lookForHanging(); len(s.flight.Live()) > 0 {
		next = s.lookAt
	}
	for b, ready, back := s.flight.Next(); b != nil; b, ready, back = s.flight.Next() {
		s.goOn(b, ready, back)
	}
	for _, b := range s.flight.Live() {
		if at := b.SettleAt(); at > s.now {
			next = min(next, at)
		} else {
			s.do.Settle(b, b.Settle(s.now, s.routes))
		}
	}
	return next
}

// Claimed takes the answer to a claim, which was received then.
func (s *Shard) Claimed(now time.Duration, claim message.Claim, received time.Duration, err error) {
	s.now = now
	s.planner.endCall()
	if s.planner.noteReply("claim", err); err != nil {
		s.planner.noAnswer(now)
		return
	}
	s.planner.clearTroubles(claim.State)
	switch claim.State {
	case message.ClaimGranted:
		s.granted(claim, received)
	case message.ClaimReclaimFirst:
		s.reclaim(s.planner.reclaimForeign())
	default:
		if s.planner.refused(now, &claim, received); s.planner.isUnderWay {
			s.do.NoLayout()
		}
	}
}

// granted takes the messages of a claim, and publishes those that need not wait, after the
// confirmation if the queue asks for one. If the claim shows that there may be earlier ones, all go back (I15).
func (s *Shard) granted(claim message.Claim, received time.Duration) {
	g := s.planner.granted(&claim, received)
	if claim.Token = g.request.Token; g.isNew {
		s.queue.gain(s.index, g.hasLapsed)
	}
	c := batch.Claim{Claim: claim, Lease: s.planner.lease, Deadline: g.deadline, Unsure: g.isUnsure, Durable: s.queue.config.Claims.Durable && !g.isUnsure}
	s.flight.Saw(&claim)
	c.Parked = s.park(&g, &claim, received)
	s.quota.Use(g.allowed, len(claim.Messages)-len(c.Parked), claim.More && (g.probe != nil || untilHead(&claim) == 0))
	s.flight.Extend(g.request.Live, g.began, s.queue.config.Claims.Timeout)
	s.tellEpoch(claim.Epoch)
	isGivenUp := false
	if g.probe != nil {
		c.From, c.IsProbe = g.probe.Route, g.probe.IsFirst
		isGivenUp = s.routes.Claimed(g.probe, claim.Messages, !claim.More, s.now) && len(c.Parked) == 0
	}
	if len(claim.Messages) > 0 {
		b := s.flight.Add(c, s.now)
		s.queue.config.Observer.AddInFlight(s.queue.config.Queue, len(b.Messages))
		switch {
		case isGivenUp:
			s.giveUp(b)
		case c.Durable:
			s.do.Confirm(b)
		default:
			s.publish(b, b.Indices(batch.Held), false)
		}
	}
	s.turn.use(s.flight.Load())
	s.flight.EndClaim()
	s.reclaim(s.planner.reclaimStrays(claim.Strays))
}

// publish hands messages to the sink, except those that must not be published. areTold: Redis was
// asked for the queue's topics, and the queue accepts theirs. None starts after the lease or the
// claim's deadline, for order (I15), in a drain, or of a claim that is not confirmed or unsure: they go back.
func (s *Shard) publish(b *batch.Batch, indices []int, areTold bool) {
	defer s.recovered(b)
	if s.planner.isDraining || !b.MayPublish(s.now) {
		s.giveBack(b, indices)
		return
	}
	messages, admitted := make([]message.Message, len(indices)), make([]int, 0, len(indices))
	for _, i := range indices {
		if s.admit(b, i, &messages[len(admitted)], areTold) {
			admitted = append(admitted, i)
		}
	}
	if len(admitted) < len(indices) {
		s.leftOut(b, len(admitted) > 0)
	}
	if len(admitted) > 0 {
		s.do.Publish(b.HandOver(admitted, s.queue.base.Add(s.now), s.changed), messages[:len(admitted)])
	}
}

// admit makes m the message to publish, with its body decrypted, and reports whether to publish it. If
// not, it has decided the verdict, or asks for the queue's topics. The batch's own message stays sealed.
func (s *Shard) admit(b *batch.Batch, i int, m *message.Message, isTold bool) bool {
	claimed := &b.Messages[i]
	*m = claimed.Message
	m.Attempt, m.Minimal = claimed.Attempts.Begun+1, s.policy.Minimal
	_, isSealed := m.SealedBy()
	isTaken := isTold || s.queue.config.Topics == nil || s.queue.config.Topics.Known().Check(m.Topic) == nil
	switch verdict, isLate := claimed.LateOr(s.policy.Late).Judge(claimed, s.planner.redisClock(s.now)); {
	case claimed.Err != nil:
		s.decide(b, i, sinks.Outcome{})
		s.refund(claimed, false)
	case isLate:
		s.refuse(b, i, verdict)
	case !isTaken: // It may have been added a moment ago.
		s.toAsk = append(s.toAsk, i)
	case isSealed:
		return s.open(b, i, m)
	default:
		return true
	}
	return false
}

// take decides about the messages of a call whose outcomes have come. The answers come first:
// whether the broker has answered anything decides what a missing answer means.
func (s *Shard) take(b *batch.Batch, c *batch.Publication) {
	defer s.recovered(b)
	reports := c.Outcomes.Take()
	if len(reports) == 0 || b.Open() == 0 {
		return
	}
	var failed []*sinks.Report
	messages, bytes, took := 0, 0, time.Duration(0)
	for n := range reports {
		report, i := &reports[n], c.Indices[reports[n].Index]
		if s.observe(&b.Messages[i], c.Began, report); !report.IsAnswer() {
			failed = append(failed, report)
			continue
		}
		if b.IsHung(i) {
			s.flight.HangEnded(b, i, true, s.now)
		} else {
			messages, bytes, took = messages+1, bytes+b.Weight(i), took+report.At.Sub(c.Began)
		}
		s.decide(b, i, report.Outcome)
	}
	if len(failed) < len(reports) {
		if s.queue.config.Sink.Window.Answered(messages, bytes, took/time.Duration(max(1, messages))) {
			s.log.Info("sink back", "event", "publish")
		}
		if isFirst := b.Answer(); isFirst && b.From != nil {
			s.routes.Succeed(b.From)
		}
	}
	if len(failed) > 0 {
		s.fail(b, c, failed)
	}
}

// decide records the verdict on a message.
func (s *Shard) decide(b *batch.Batch, i int, outcome sinks.Outcome) {
	claimed := &b.Messages[i]
	if outcome.Class != sinks.Acknowledged || claimed.Err != nil {
		s.judge(b, i, outcome)
		return
	}
	verdict := message.Verdict{Verb: message.VerbAck, Attempts: claimed.Attempts, Published: true}
	if s.queue.config.Places {
		verdict.Place = outcome.Place.String()
	}
	s.flight.Decide(b, i, verdict, nil, s.now)
}

// Settled takes the answer to a settle.
func (s *Shard) Settled(now time.Duration, b *batch.Batch, stale bool, err error) {
	defer s.recovered(b)
	s.now = now
	if s.planner.noteReply("settle", err); err != nil {
		s.unsettled(b, err)
		return
	}
	indices, n, isRepeated := s.flight.EndSettle(b, !stale, now)
	s.queue.config.Observer.AddInFlight(s.queue.config.Queue, -len(indices))
	s.planner.settled()
	if stale || isRepeated {
		s.tellAcks(b, indices)
	}
	switch {
	case stale:
		s.sayStale(indices)
		return
	case n.Verbs[message.VerbAck] < len(indices):
		s.say(b, indices, &n)
	}
	s.queue.config.Observer.Settled(s.queue.config.Queue, n.Verbs, n.Suspected)
}

// forget gives up what a claim that was lost has left.
func (s *Shard) forget(b *batch.Batch) {
	s.queue.config.Observer.AddInFlight(s.queue.config.Queue, -b.Left())
	s.tellAcks(b, s.flight.Forget(b, s.now))
	s.planner.roomFreed()
}

// observe reports the sink's outcome for a message, and measures the lateness of an
// acknowledged one.
func (s *Shard) observe(claimed *message.ClaimedMessage, began time.Time, report *sinks.Report) {
	defer recovered(s.log, "settle", nil)
	late := lateness(&claimed.Message, s.planner.redisClock(report.At.Sub(s.queue.base)))
	if report.Class == sinks.Acknowledged {
		s.queue.config.Observer.ObserveLateness(s.queue.config.Queue, late)
	}
	if s.queue.config.Hooks.OnPublished != nil {
		s.queue.config.Hooks.OnPublished(claimed, began, report, late)
	}
}

// lateness is how long after its promised due time, or after it was scheduled if that was later,
// the message was acknowledged.
func lateness(m *message.Message, acknowledged time.Time) time.Duration {
	return max(0, min(acknowledged.Sub(m.DueAt), acknowledged.Sub(m.ScheduledAt)))
}

// recovered, deferred, gives a batch up with which something panicked: its claim is left
// to be reclaimed.
func (s *Shard) recovered(b *batch.Batch) {
	if cause := recover(); cause != nil {
		logPanic(s.log, "settle", cause)
		s.flight.Fail(b, s.now)
	}
}
