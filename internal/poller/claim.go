package poller

import (
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// look makes one claim call, of nothing if there is no room, and acts on the
// answer.
func (s *shard) look() {
	began := s.services.now()
	if !s.asking.isPending() && !s.ask(began) {
		return
	}
	claim, err := s.services.redis.claim(*s.asking.pending)
	if err != nil {
		s.backOff()
		if s.draining {
			s.advance() // The next holder reclaims what it may have taken.
		}
		return
	}
	s.asking.redis.Reset()
	s.times.renewAt = s.services.clock.nextCommon(began, s.services.config.Claims.renewEvery())
	s.act(began, claim)
}

// backOff makes no call for a while.
func (s *shard) backOff() {
	s.times.quietUntil = s.services.now() + s.asking.redis.Next()
}

// ask makes the next request pending. It returns false where there is nothing to
// ask for: the sink has no room, and the lease need not be renewed yet.
func (s *shard) ask(now time.Duration) bool {
	claims := &s.services.config.Claims
	request := message.ClaimRequest{
		Token:   message.ClaimToken{Instance: s.services.config.Instance, Number: s.asking.number},
		Timeout: claims.Timeout,
		Lease:   claims.Lease,
		Free:    s.services.routes.takeFree(),
		Seize:   s.holding.seize(now, claims.Lease),
	}
	s.reserve(&request, now)
	if request.Max == 0 && s.mayWait(now) && len(request.Free) == 0 {
		return false
	}
	request.Live = s.inFlight.tokens()
	if request.Max > 0 && request.Slot == 0 {
		drainSignal(s.hint) // What it hints at, this claim sees.
	}
	request.Quiet = request.Max == 0 && s.holding.mine
	s.asking.pending, s.asking.first = &request, now
	return true
}

// mayWait reports whether the loop has nothing to do before its turn in the window
// comes, the sink is probed again or the lease is to be renewed.
func (s *shard) mayWait(now time.Duration) bool {
	isRefused := s.turn.isCrowded || now < s.times.closedUntil()
	return isRefused && s.holding.mine && !s.draining && now < s.times.renewAt
}

// reserve chooses what to take, what is due or a slot in turn, and gets room for
// it in the sink's window. Where there is none, the claim takes nothing.
func (s *shard) reserve(request *message.ClaimRequest, now time.Duration) {
	if !s.draining && (now < s.times.closedUntil() || s.turn.isCrowded) { // Its turn in the window comes.
		return
	}
	allowed, from := s.pick(now)
	if allowed.messages == 0 {
		s.turn.share.Yield()
		return
	}
	messages, bytes, retryAt := s.turn.reserve(allowed.messages)
	if !retryAt.IsZero() {
		s.times.pausedUntil = now + time.Until(retryAt)
	}
	if messages == 0 {
		s.services.quota.use(allowed, 0)
		return
	}
	s.asking.allowed = allowed
	request.Max, request.MaxBytes = messages, bytes
	if from != nil {
		request.Slot, s.asking.probe = from.slot, from
	}
}

// advance gives up the pending request, its number and its room in the window.
func (s *shard) advance() {
	s.turn.use(0, 0)
	s.services.quota.use(s.asking.allowed, 0)
	s.asking.advance()
}

func (s *shard) act(began time.Duration, claim message.Claim) {
	s.asking.answered(claim.State)
	switch claim.State {
	case message.ClaimGranted:
		s.granted(began, claim)
	case message.ClaimHeld:
		s.advance()
		s.times.takeAt, s.times.renewAt = 0, 0
		received := s.services.now()
		s.times.quietUntil = received + s.holding.isOthers(began, received, &claim)
	case message.ClaimReclaimFirst:
		s.holding.mine, s.holding.left = false, true
		s.reclaimForeign()
	case message.ClaimOutdated:
		s.advance()
		s.times.takeAt, s.times.renewAt = 0, 0
		if s.asking.skip() {
			s.backOff()
		}
	case message.ClaimNoLayout:
		s.advance()
		s.times.renewAt = 0
		s.noLayout()
	default:
		s.advance()
		s.times.renewAt = 0
		s.services.log.Error("claim answered with an unknown state", "event", "claim", "state", int(claim.State))
		s.backOff()
	}
}

// granted takes the answer of a claim that held the lease.
func (s *shard) granted(began time.Duration, claim message.Claim) {
	received := s.services.now()
	request, from, first := *s.asking.pending, s.asking.probe, s.asking.first
	claims := &s.services.config.Claims
	claim.Token = request.Token
	b := newBatch(claim, s.holding.lease, first+claims.Timeout)
	b.confirming.Store(claims.Durable)
	b.parked = s.park(from, &claim, received)
	s.services.quota.use(s.asking.allowed, len(claim.Messages)-len(b.parked))
	b.occupy(s.turn.share)
	s.turn.use(b.window.messages, b.window.bytes)
	s.asking.advance()
	if isNew, lapsed := s.holding.granted(received); isNew {
		s.gains.add(s.services.index, lapsed)
		s.asking.unloaded, s.asking.isLoaded = true, false
	}
	s.services.redis.sawTime(claim.Now, received)
	s.holding.renew(began, claims.Lease)
	b.lease = s.holding.lease
	s.inFlight.extend(request.Live, began, claims.Timeout)
	s.tellEpoch(claim.Epoch)
	s.services.returns.saw(&claim)
	if from == nil {
		s.times.sawHead(&claim, received, request.Max > 0)
	} else {
		s.times.takeAt = min(s.times.takeAt, received+untilHead(&claim))
		isGivenUp := s.services.routes.claimed(from, claim.Messages, !claim.More, s.services.config.Sink.Route)
		b.route, b.isGivenUp = from.route, isGivenUp && len(b.parked) == 0
	}
	if len(claim.Messages) > 0 {
		s.services.config.Observer.AddInFlight(s.services.config.Queue, len(claim.Messages))
		s.inFlight.begin(b, s.services.run)
	}
	s.reclaimStrays(claim.Strays)
}

// park decides which messages of a claim go back to slots at once.
func (s *shard) park(from *probe, claim *message.Claim, received time.Duration) (parked []parking) {
	routes, name := s.services.routes, s.services.config.Sink.Route
	if from == nil || routes.isOpening(from.route) {
		routes.suspectAll(claim.Messages, name, received, claim.Now)
		parked = routes.parkAll(claim.Messages, name, claim.Now)
	} else {
		parked = routes.parkPaused(from.route, claim.Messages, name)
		s.services.quota.spend(claim.Messages, parked)
	}
	if from != nil && len(parked) > 0 && len(parked) == len(claim.Messages) {
		routes.passed(from.route)
	}
	return parked
}

func (s *shard) tellEpoch(epoch string) {
	if tell := s.services.config.Hooks.OnEpoch; s.asking.isNewEpoch(epoch) && tell != nil {
		tell(epoch)
	}
}

// noLayout waits until somebody made the layout, perhaps us, or took the shard
// away because it was dropped. Which of them it is, OnNoLayout can tell and say.
func (s *shard) noLayout() {
	first := s.asking.layout.Failures() == 0
	s.times.quietUntil = s.services.now() + s.asking.layout.Next()
	hook := s.services.config.Hooks.OnNoLayout
	switch {
	case hook != nil && !s.draining:
		ctx, cancel := s.services.redis.limited()
		defer cancel()
		hook(ctx, s.services.index)
	case hook == nil && first:
		s.services.log.Warn("the layout is missing in redis", "event", "claim")
	}
}

// load reads what is parked in the shard.
func (s *shard) load() {
	parked, err := s.services.redis.parked()
	if err != nil {
		s.backOff()
		return
	}
	s.services.routes.load(parked, s.services.now(), !s.asking.isLoaded)
	s.asking.unloaded, s.asking.isLoaded = false, true
}
