package poller

import (
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// look makes one claim call, of nothing if there is no room.
func (s *shard) look() {
	if !s.asking.isPending() && !s.ask() {
		return
	}
	s.asking.isUnderWay, s.asking.began = true, s.now
	s.do.claim(*s.asking.pending)
}

// claimed takes the answer to a claim, which was received then.
func (s *shard) claimed(now time.Duration, claim message.Claim, received time.Duration, err error) {
	s.now, s.asking.isUnderWay = now, false
	if s.heard("claim", err); err != nil {
		s.backOff()
		if s.isDraining {
			s.advance() // The next holder reclaims what it may have taken.
		}
		return
	}
	s.times.renewAt = s.clock.nextCommon(s.asking.began, s.config.Claims.renewEvery())
	s.asking.answered(claim.State)
	switch claim.State {
	case message.ClaimGranted:
		s.granted(claim, received)
	case message.ClaimHeld:
		s.advance()
		s.times.takeAt, s.times.renewAt = 0, 0
		s.times.quietUntil = received + s.holding.isOthers(s.asking.began, received, &claim)
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
		s.log.Error("claim answered with an unknown state", "event", "claim", "state", int(claim.State))
		s.backOff()
	}
}

// backOff makes no call for a while.
func (s *shard) backOff() {
	s.times.quietUntil = s.now + s.asking.redis.Next()
}

// ask makes the next request pending. It returns false where there is nothing to
// ask for: the sink has no room, and the lease need not be renewed yet.
func (s *shard) ask() bool {
	claims := &s.config.Claims
	request := message.ClaimRequest{
		Token:   message.ClaimToken{Instance: s.config.Instance, Number: s.asking.number},
		Timeout: claims.Timeout,
		Lease:   claims.Lease,
		Free:    s.routes.takeFree(),
		Seize:   s.holding.seize(s.now, claims.Lease),
	}
	s.reserve(&request)
	if request.Max == 0 && s.mayWait() && len(request.Free) == 0 {
		return false
	}
	request.Live = s.tokens()
	request.Quiet = request.Max == 0 && s.holding.mine
	s.asking.pending, s.asking.first = &request, s.now
	return true
}

// mayWait reports whether the loop has nothing to do before its turn in the window
// comes, the sink is probed again or the lease is to be renewed.
func (s *shard) mayWait() bool {
	isRefused := s.turn.isCrowded || s.now < s.times.closedUntil()
	return isRefused && s.holding.mine && !s.isDraining && s.now < s.times.renewAt
}

// reserve chooses what to take, what is due or a slot in turn, and gets room for
// it in the sink's window. Where there is none, the claim takes nothing.
func (s *shard) reserve(request *message.ClaimRequest) {
	if !s.isDraining && (s.now < s.times.closedUntil() || s.turn.isCrowded) { // Its turn in the window comes.
		return
	}
	allowed, from := s.pick()
	if allowed.messages == 0 {
		s.turn.share.Yield()
		return
	}
	messages, bytes, retryAt := s.turn.reserve(allowed.messages, s.now)
	if !retryAt.IsZero() {
		s.times.pausedUntil = s.now + time.Until(retryAt)
	}
	if messages == 0 {
		s.quota.use(allowed, 0)
		return
	}
	s.asking.allowed = allowed
	request.Max, request.MaxBytes = messages, bytes
	if from != nil {
		request.Slot, s.asking.probe = from.slot, from
	}
}

// pick chooses what the next claim takes: so many messages of what is due, or of
// a slot; each in turn where both could be.
func (s *shard) pick() (a allowance, from *probe) {
	if !s.takes || s.asking.unloaded {
		return allowance{}, nil
	}
	next, isDue := s.asking.next, s.now >= s.times.takeAt && !s.times.isBlocked
	inFlight := s.working()
	switch {
	case next != nil && (!isDue || s.asking.slotNext):
		a, from = s.quota.allow(next.limited, min(s.room(), next.size), inFlight), next
	case isDue:
		a = s.quota.allow("", s.room(), inFlight)
	default:
		return allowance{}, nil
	}
	if a.messages == 0 {
		if !s.quota.mayTake("", inFlight) { // It is woken.
			s.times.limitedUntil = s.now + askAgain
		}
		return allowance{}, nil
	}
	s.asking.slotNext = from == nil
	return a, from
}

// advance gives up the pending request, its number and its room in the window.
func (s *shard) advance() {
	s.turn.use(0, 0)
	s.quota.use(s.asking.allowed, 0)
	s.asking.advance()
	s.order.answered()
}

// granted takes the answer of a claim that held the lease.
func (s *shard) granted(claim message.Claim, received time.Duration) {
	request, from, began, first := *s.asking.pending, s.asking.probe, s.asking.began, s.asking.first
	claims := &s.config.Claims
	claim.Token = request.Token
	b := newBatch(claim, s.holding.lease, first+claims.Timeout)
	b.lookedAt, b.confirming = s.now, claims.Durable
	b.parked = s.park(from, &claim, received)
	s.quota.use(s.asking.allowed, len(claim.Messages)-len(b.parked))
	b.occupy(s.turn.share)
	s.turn.use(b.window.messages, b.window.bytes)
	s.asking.advance()
	if isNew, lapsed := s.holding.granted(received); isNew {
		s.gains.add(s.index, lapsed)
		s.asking.unloaded, s.asking.isLoaded = true, false
	}
	s.redis.sawTime(claim.Now, received)
	s.holding.renew(began, claims.Lease)
	b.lease = s.holding.lease
	s.extend(request.Live, began)
	s.tellEpoch(claim.Epoch)
	s.returns.saw(&claim)
	if from == nil {
		s.times.sawHead(&claim, received, request.Max > 0)
	} else {
		s.times.takeAt = min(s.times.takeAt, received+untilHead(&claim))
		isGivenUp := s.routes.claimed(from, claim.Messages, !claim.More, s.now, s.config.Sink.Route)
		b.isProbe = from.isFirst
		b.route, b.isGivenUp = from.route, isGivenUp && len(b.parked) == 0
	}
	if len(claim.Messages) > 0 {
		s.config.Observer.AddInFlight(s.config.Queue, len(claim.Messages))
		s.order.register(b)
		s.live = append(s.live, b)
		s.begin(b)
	}
	s.order.answered()
	s.reclaimStrays(claim.Strays)
}

// park decides which messages of a claim go back to slots at once.
func (s *shard) park(from *probe, claim *message.Claim, received time.Duration) (parked []parking) {
	routes, name := s.routes, s.config.Sink.Route
	switch {
	case from != nil && s.returns.keepSlots(claim):
		parked = routes.putBack(from.route, claim.Messages)
	case from == nil, routes.isOpening(from.route):
		routes.suspectAll(claim.Messages, name, received, claim.Now)
		parked = routes.parkAll(claim.Messages, name, claim.Now)
	default:
		parked = routes.parkPaused(from.route, claim.Messages, name)
		s.quota.spend(claim.Messages, parked)
	}
	if from != nil && len(parked) > 0 && len(parked) == len(claim.Messages) {
		routes.passed(from.route)
	}
	return parked
}

func (s *shard) tellEpoch(epoch string) {
	if tell := s.config.Hooks.OnEpoch; s.asking.isNewEpoch(epoch) && tell != nil {
		tell(epoch)
	}
}

// noLayout waits until somebody made the layout, perhaps us, or took the shard
// away because it was dropped. Which of them it is, OnNoLayout can tell and say.
func (s *shard) noLayout() {
	first := s.asking.layout.Failures() == 0
	s.times.quietUntil = s.now + s.asking.layout.Next()
	switch {
	case s.config.Hooks.OnNoLayout != nil && !s.isDraining:
		s.asking.isUnderWay = true
		s.do.noLayout()
	case s.config.Hooks.OnNoLayout == nil && first:
		s.log.Warn("the layout is missing in redis", "event", "claim")
	}
}

// reported says that OnNoLayout has returned.
func (s *shard) reported(now time.Duration) {
	s.now, s.asking.isUnderWay = now, false
}

// loaded takes what is parked in the shard.
func (s *shard) loaded(now time.Duration, parked []message.ParkedRoute, err error) {
	s.now, s.asking.isUnderWay = now, false
	if s.heard("claim", err); err != nil {
		s.backOff()
		return
	}
	s.routes.load(parked, now, !s.asking.isLoaded)
	s.asking.unloaded, s.asking.isLoaded = false, true
}

// reclaimForeign returns the claims of earlier holders. The claim that was
// refused for their sake is then asked for again.
func (s *shard) reclaimForeign() {
	if s.isDraining {
		s.advance()
		return
	}
	s.times.takeAt, s.times.renewAt = 0, 0
	s.reclaim(reclaiming{which: message.Reclaim{Instance: s.config.Instance, Foreign: true}})
}

// reclaimStrays returns claims of ours that no batch of ours is: a failover has
// taken their settling back, or a settle had no answer for too long.
func (s *shard) reclaimStrays(strays []message.ClaimToken) {
	if len(strays) > 0 {
		s.reclaim(reclaiming{which: message.Reclaim{Instance: s.config.Instance, Stray: strays[0]}, strays: strays[1:]})
	}
}

func (s *shard) reclaim(r reclaiming) {
	s.asking.reclaiming, s.asking.isUnderWay = r, true
	s.do.reclaim(r.which)
}

// reclaimed takes the answer to a call that reclaims. The next one follows until nothing
// is left, or as often as one look allows.
func (s *shard) reclaimed(now time.Duration, messages int, more bool, err error) {
	s.now, s.asking.isUnderWay = now, false
	s.heard("reclaim", err)
	r := s.asking.reclaiming
	r.reclaimed += messages
	r.calls++
	if err == nil && more && r.calls < maxReclaims {
		s.reclaim(r)
		return
	}
	if r.reclaimed > 0 {
		s.config.Observer.Reclaimed(s.config.Queue, r.reclaimed)
		s.times.takeAt = 0
		s.asking.unloaded = true // What was parked is parked again.
		s.returns.note(s.redis.clock(now))
	}
	if r.which.Foreign {
		s.asking.first = now // Nothing was taken so far.
		s.gains.reclaimed(r.reclaimed)
		if err != nil || r.reclaimed == 0 {
			// Nothing to reclaim, and yet the claim was refused: do not spin.
			s.times.quietUntil = now + s.holding.reclaimPause.Next()
			return
		}
		s.holding.reclaimPause.Reset()
		return
	}
	if err != nil {
		return
	}
	s.lose(r.which.Stray)
	if r.reclaimed > 0 {
		s.log.Warn("a claim came back that had been settled or given up, reclaimed",
			"event", "reclaim", "claim", r.which.Stray.String(), "messages", r.reclaimed)
	}
	s.reclaimStrays(r.strays)
}

// lose notes that a claim was reclaimed.
func (s *shard) lose(token message.ClaimToken) {
	for _, b := range s.live {
		if b.claim.Token == token {
			b.lost = true
		}
	}
}
