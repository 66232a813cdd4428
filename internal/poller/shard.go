package poller

import (
	"log/slog"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

// maxReclaims is how many calls reclaim at a time, before the next claim
// renews the lease.
const maxReclaims = 16

// How many batches of a shard may be under way. Those that wait for routes which may be
// dead have bounds of their own, so that they keep nobody from the others: probes, and
// batches of which all that is left hangs. While maxProbing of these are under way no
// route is probed; what hangs is the probe of its route.
const (
	maxLive    = 64
	maxProbing = 256
	maxHanging = 1024
)

// The waits for a store that does not confirm claims. The limit is part of how long
// a shard stands still after that, so it is short.
const (
	unconfirmedInitial = 100 * time.Millisecond
	unconfirmedLimit   = 2 * time.Second
)

// Messages that hang are looked for now and then. One hangs if it was not
// answered for so long, while messages that were handed over later were; or while
// nobody was and the window is full: then all that fill it may be of routes that
// hang, and no answer to others can come.
const (
	lookForHanging = 125 * time.Millisecond
	leastHanging   = 500 * time.Millisecond
	hangingTimes   = 4 // the usual time to an answer
)

// shard is one shard's part in publishing, as a machine: it is told what has happened, and
// says what to do ([calls]). It starts no goroutine, waits for nothing and reads no clock:
// now is when it was told last. It is not safe for concurrent use; its [driver] is who
// tells it.
type shard struct {
	*common

	index int
	log   *slog.Logger
	do    calls
	// changed, of 1, is told when an outcome has come.
	changed chan struct{}
	now     time.Duration

	isDraining bool // claim no more, and begin no publish
	isCut      bool // what was being published was cut short
	isOver     bool // the store is not called any more

	heeded  *pauses   // what is heeded of the queue's
	times   timetable // when to call
	holding holding   // whether the shard is ours
	turn    turn      // room in the sink's window
	quota   *quota    // what the rates allow
	takes   bool      // messages can be claimed, if there are any
	asking  asking    // what was asked for, and has no answer yet
	redis   redisView // whether Redis answers, and what its clock says
	routes  *routes
	order   order
	returns returns

	live             []*batch     // in the order of their claims
	fresh            []int        // outcomes, while they are taken
	told             []*batch     // that have been told what became of earlier messages
	ramp             ramp         // after a panic of the sink
	unconfirmedPause wait.Backoff // after claims that were not confirmed
}

// calls is what a shard has done for it. Each begins something and returns at once; what
// comes of it, the shard is told.
type calls interface {
	claim(request message.ClaimRequest)       // claimed
	reclaim(which message.Reclaim)            // reclaimed
	parked()                                  // loaded
	noLayout()                                // reported
	confirm(b *batch)                         // confirmed
	topics(b *batch, indices []int)           // toldTopics
	publish(c *call, batch []message.Message) // c.outcomes
	settle(b *batch)                          // settled
}

// newShard makes a shard that has not begun; number is the first claim number.
func newShard(c *common, index int, number uint64, do calls) *shard {
	log, q := c.config.Logger.With("shard", index), &quota{rates: c.rates, shard: index}
	s := &shard{
		common: c, index: index, log: log, do: do, asking: newAsking(c, number), holding: newHolding(c), quota: q, routes: newRoutes(log, c, q),
		redis: redisView{log: log, downShards: &c.news.redisDownShards},
		turn:  turn{roomUntil: never, grantUntil: never}, returns: returns{claimable: never},
	}
	s.unconfirmedPause = c.backoff(unconfirmedInitial, unconfirmedLimit)
	return s
}

// step does all that is to be done now: it takes the outcomes that have come, settles,
// and makes the next call of the loop where it is time. It returns when to step again if
// nothing happens before; more is false when the drain is over.
func (s *shard) step(now time.Duration) (next time.Duration, more bool) {
	s.now = now
	s.heed()
	next = min(s.turn.lapse(now), s.seeThrough())
	s.prune()
	if !s.asking.isPending() {
		s.times.takeAt, s.returns.claimable = min(s.times.takeAt, s.returns.claimable), never
	}
	if len(s.live) == 0 && !s.asking.isUnderWay && (s.isOver || s.isDraining && !s.asking.isPending()) {
		return 0, false
	}
	if s.asking.isUnderWay || s.isOver {
		return next, true
	}
	at := s.nextCall()
	if at <= now {
		if s.call(); s.asking.isUnderWay {
			return next, true
		}
		at = s.nextCall() // There was nothing to ask for.
	}
	return min(next, at), true
}

// nextCall is when the loop makes its next call.
func (s *shard) nextCall() time.Duration {
	s.takes = s.mayTake()
	at := s.times.next(s.asking.isPending(), s.takes)
	if heard := s.holding.refusedAt + leastHeld; s.holding.byOther && heard > s.now {
		at = min(at, heard) // From then on hints are heard.
	}
	return at
}

// call makes the loop's next call, if there is anything to ask for.
func (s *shard) call() {
	if s.asking.unloaded && s.holding.mine && !s.asking.isPending() && !s.isDraining {
		s.asking.isUnderWay = true
		s.do.parked()
		return
	}
	s.look()
}

// hears reports whether a hint is of use now. Else it is kept until it is.
func (s *shard) hears(now time.Duration) bool {
	if s.asking.isUnderWay || s.asking.isPending() {
		return false
	}
	if s.holding.byOther { // The holder may have given it up. A busy producer's hints say the same.
		return now >= s.holding.refusedAt+leastHeld
	}
	return s.takes && now >= s.times.quietUntil && now >= s.times.closedUntil()
}

// hinted says that the head may have moved earlier, or that the shard's holder gave it up.
func (s *shard) hinted() {
	s.times.takeAt = 0
	if s.holding.byOther {
		s.times.quietUntil, s.times.renewAt = 0, 0
	}
}

// woken says that there may be room in the window, or that the sink is back.
func (s *shard) woken(now time.Duration) {
	s.turn.woken(now, s.asking.isUnderWay)
	s.times.pausedUntil = 0
}

// allowed says that the rates may allow more.
func (s *shard) allowed() { s.times.limitedUntil = 0 }

// drain says that the shard is to end: what is in flight is finished first.
func (s *shard) drain() {
	if !s.isDraining {
		s.isDraining, s.times.quietUntil = true, 0
	}
}

// leave gives back what it holds in the window, when all has ended.
func (s *shard) leave() {
	if s.asking.isPending() {
		s.advance()
	}
	s.turn.share.Leave()
	s.quota.leave()
	s.redis.leave()
}

// end says that the store is not called any more, and that what it has in flight is lost.
func (s *shard) end(now time.Duration) {
	s.now, s.isOver = now, true
	for _, b := range s.live {
		if !b.settling.isCalled {
			s.abandon(b)
		}
	}
}

// mayTake reports whether messages may be claimed now, if there are any, and
// notes when a slot can be.
func (s *shard) mayTake() bool {
	s.asking.next = nil
	if s.isDraining || s.isPaused() || !s.holding.mine || s.turn.isCrowded || s.room() == 0 {
		return false
	}
	if s.asking.unloaded {
		s.times.probeAt = 0
		return true
	}
	s.asking.next, s.times.probeAt, s.times.isBlocked = s.nextSlot()
	return true
}

// nextSlot is the slot to claim from, if any, see [routes.next].
func (s *shard) nextSlot() (next *probe, at time.Duration, isBlocked bool) {
	if s.returns.isAny() && s.now >= s.times.takeAt {
		return nil, s.now + never, false
	}
	return s.routes.next(s.now, s.config.Claims.Batch, s.mayProbe())
}

// room is how many messages the next claim may take.
func (s *shard) room() int {
	claims := &s.config.Claims
	switch {
	case s.returns.underWay > 0: // The parts of a Key could hold each other up for ever.
		return 0
	case s.unconfirmedPause.Failures() > 0: // One message finds out whether claims are confirmed again.
		return max(0, 1-len(s.live))
	}
	confirming, working := 0, 0
	for _, b := range s.live {
		if b.working() > 0 {
			working++
		}
		if b.confirming {
			confirming++
		}
	}
	if confirming >= claims.InFlight || working >= maxLive || len(s.live)-working >= maxHanging { // Each confirmation holds a connection.
		return 0
	}
	return min(claims.Batch, claims.Batch*claims.InFlight-s.working(), s.ramp.room(len(s.live) == 0))
}

// working is how many messages are in flight, but for those of probes and those that hang.
func (s *shard) working() (n int) {
	for _, b := range s.live {
		n += b.working()
	}
	return n
}

// mayProbe reports whether another route may be probed.
func (s *shard) mayProbe() bool {
	if len(s.live) < maxProbing {
		return true
	}
	probing := 0
	for _, b := range s.live {
		if b.working() == 0 {
			probing++
		}
	}
	return probing < maxProbing
}

// seeThrough does what is to be done for the batches in flight, and returns when to come
// again.
func (s *shard) seeThrough() (next time.Duration) {
	next = never
	hasLooked := false
	for _, b := range s.live {
		if b.open == 0 {
			continue
		}
		s.takeAll(b)
		if s.now-b.lookedAt >= lookForHanging {
			b.lookedAt, hasLooked = s.now, true
			s.findHanging(b)
		}
		if b.open > 0 {
			next = min(next, b.lookedAt+lookForHanging)
		}
	}
	switch {
	case s.isDraining:
		s.giveBackBehind(func(*segment) bool { return true })
	case hasLooked:
		s.giveBackBehind(s.isClosed)
	}
	s.unblock()
	for _, b := range s.live {
		switch at := b.settleAt(); {
		case at > s.now:
			next = min(next, at)
		case len(b.settling.indices) > 0:
			b.settling.isCalled, b.settling.settlement.Repeated = true, true
			s.do.settle(b)
		default:
			s.settle(b)
		}
	}
	return next
}

// recovered, deferred, gives a batch up with which something panicked: its claim is left
// to be reclaimed.
func (s *shard) recovered(b *batch) {
	if cause := recover(); cause != nil {
		logPanic(s.log, "settle", cause)
		s.abandon(b)
		b.open, b.hung = 0, 0
	}
}

// prune forgets the batches that have ended.
func (s *shard) prune() {
	kept := s.live[:0]
	for _, b := range s.live {
		if !b.hasEnded() || b.left > 0 && s.asking.isPending() && !s.isOver { // Of a lost claim: it may be behind it.
			kept = append(kept, b)
			continue
		}
		s.finish(b)
		s.ramp.learn(b, s.config.Claims.Batch)
	}
	clear(s.live[len(kept):])
	s.live = kept
}

// tokens are the claims whose deadlines are to be extended.
func (s *shard) tokens() (tokens []message.ClaimToken) {
	for _, b := range s.live {
		if !b.forsaken {
			tokens = append(tokens, b.claim.Token)
		}
	}
	return tokens
}

// extend notes the new deadlines of claims, which a request of then has listed.
func (s *shard) extend(tokens []message.ClaimToken, began time.Duration) {
	for _, b := range s.live { // Both in the order of their numbers.
		for len(tokens) > 0 && tokens[0].Number < b.claim.Token.Number {
			tokens = tokens[1:] // It has ended.
		}
		if len(tokens) > 0 && b.claim.Token == tokens[0] && began < b.deadline {
			b.deadline = began + s.config.Claims.Timeout
		}
	}
}

// sinkAnswered is told of answers of the sink.
func (s *shard) sinkAnswered(wasDown bool) {
	if wasDown {
		s.log.Info("sink back", "event", "publish")
	}
}
