package poller

import (
	"context"
	"time"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/wait"
)

// The waits of a shard that nobody has a layout for.
const (
	layoutBackoffInitial = 100 * time.Millisecond
	layoutBackoffLimit   = 5 * time.Second
)

// freeNumbers is how many outdated numbers in a row are replaced without a pause.
const freeNumbers = 8

// asking is the state of the shard's claim calls. A request stays pending,
// token and all, until it is answered.
type asking struct {
	number  uint64
	pending *message.ClaimRequest
	first   time.Duration // when pending was first sent
	probe   *probe        // the slot that pending claims from; nil: what is due
	room    *reservation  // in the window, for pending; nil where it takes nothing
	// unloaded: what is parked in the shard has to be read from Redis first.
	unloaded bool
	outdated int
	epoch    string // the last that OnEpoch was told
	redis    wait.Backoff
	layout   wait.Backoff
}

func newAsking(number uint64) asking {
	return asking{
		number: number, unloaded: true,
		redis:  wait.Backoff{Initial: redisBackoffInitial, Limit: redisBackoffLimit},
		layout: wait.Backoff{Initial: layoutBackoffInitial, Limit: layoutBackoffLimit},
	}
}

// look makes one claim call, of nothing if there is no room, and acts on the
// answer.
func (s *shard) look() {
	began := s.now()
	if s.asking.pending == nil {
		s.ask(began)
	}
	claim, err := s.callClaim(*s.asking.pending)
	if err != nil {
		s.redis.silent("claim", err)
		s.times.quietUntil = s.now() + s.asking.redis.Next()
		if s.draining {
			s.advance() // The next holder reclaims what it may have taken.
		}
		return
	}
	s.redis.answered()
	s.asking.redis.Reset()
	s.times.renewAt = s.nextCommon(began)
	s.act(began, claim)
}

// ask makes the next request pending.
func (s *shard) ask(now time.Duration) {
	request := message.ClaimRequest{
		Token:   message.ClaimToken{Instance: s.config.Instance, Number: s.asking.number},
		Timeout: s.config.Claims.Timeout,
		Lease:   s.config.Claims.Lease,
		Free:    s.routes.takeFree(),
		Seize:   s.holding.seize(now, s.config.Claims.Lease),
	}
	s.reserve(&request, now)
	for _, b := range s.live {
		if !b.forsaken.Load() && !b.finished() {
			request.Live = append(request.Live, b.claim.Token)
		}
	}
	if request.Max > 0 && request.Slot == 0 {
		drainSignal(s.hint) // What it hints at, this claim sees.
	}
	request.Quiet = request.Max == 0 && s.holding.mine
	s.asking.pending, s.asking.first = &request, now
}

// reserve chooses what to take, what is due or a slot in turn, and gets room for
// it in the sink's window. Where there is none, the claim takes nothing.
func (s *shard) reserve(request *message.ClaimRequest, now time.Duration) {
	if !s.draining && (now < s.times.pausedUntil || s.isCrowded) { // Its turn in the window comes.
		return
	}
	size, from := s.pick(now)
	if size == 0 {
		s.share.Yield()
		return
	}
	s.turn.timer.Stop() // It comes for it now.
	messages, bytes, retryAt := s.share.Reserve(size, true)
	if !retryAt.IsZero() {
		s.times.pausedUntil = now + time.Until(retryAt)
	}
	if messages == 0 {
		s.isCrowded = retryAt.IsZero()
		return
	}
	request.Max, request.MaxBytes = messages, bytes
	s.asking.room = reserve(s.share)
	if from != nil {
		request.Slot, s.asking.probe = from.slot, from
	}
}

func (s *shard) callClaim(request message.ClaimRequest) (claim message.Claim, err error) {
	defer recovered(s.log, "claim", &err)
	ctx, cancel := context.WithTimeout(s.redis.ctx, s.config.Claims.callTimeout())
	defer cancel()
	return s.services.store.Claim(ctx, request)
}

// advance gives up the pending request, its number and its room in the window.
func (s *shard) advance() {
	s.unreserve(0, 0)
	s.asking.pending, s.asking.probe = nil, nil
	s.asking.number++
}

// unreserve says what the room in the window was used for.
func (s *shard) unreserve(messages, bytes int) {
	if s.asking.room != nil {
		s.asking.room.use(messages, bytes)
	}
	s.asking.room = nil
}

func (s *shard) act(began time.Duration, claim message.Claim) {
	if claim.State != message.ClaimOutdated {
		s.asking.outdated = 0
	}
	if claim.State != message.ClaimNoLayout {
		s.asking.layout.Reset()
	}
	switch claim.State {
	case message.ClaimGranted:
		s.granted(began, claim)
	case message.ClaimHeld:
		s.advance()
		s.times.takeAt, s.times.renewAt = 0, 0
		received := s.now()
		s.times.quietUntil = received + s.holding.isOthers(began, received, &claim)
	case message.ClaimReclaimFirst:
		s.holding.mine, s.holding.left = false, true
		s.reclaimForeign()
	case message.ClaimOutdated:
		s.isOutdated()
	case message.ClaimNoLayout:
		s.advance()
		s.times.renewAt = 0
		s.noLayout()
	default:
		s.advance()
		s.times.renewAt = 0
		s.log.Error("claim answered with an unknown state", "event", "claim", "state", int(claim.State))
		s.times.quietUntil = s.now() + s.asking.redis.Next()
	}
}

// isOutdated takes another number, in growing steps: it may be far behind.
func (s *shard) isOutdated() {
	s.advance()
	s.asking.number += 1<<min(s.asking.outdated, 20) - 1
	s.asking.outdated++
	s.times.takeAt, s.times.renewAt = 0, 0
	if s.asking.outdated > freeNumbers {
		s.times.quietUntil = s.now() + s.asking.redis.Next()
	}
}

// granted takes the answer of a claim that held the lease.
func (s *shard) granted(began time.Duration, claim message.Claim) {
	received := s.now()
	request, from, first := *s.asking.pending, s.asking.probe, s.asking.first
	claim.Token = request.Token
	b := newBatch(claim, s.holding.lease, first+s.config.Claims.Timeout)
	if from == nil {
		s.park(b)
	}
	s.unreserve(b.published())
	s.advance()
	if isNew, lapsed := s.holding.granted(received); isNew {
		s.hasObtained(s.index, lapsed)
		s.asking.unloaded, s.isLoaded = true, false
	}
	s.redis.sawTime(claim.Now, received)
	s.holding.renew(began, s.config.Claims.Lease)
	b.lease = s.holding.lease
	s.extend(began, request.Live)
	s.tellEpoch(claim.Epoch)
	if until := s.releasedUpTo.Load(); until != 0 && s.released.Load() == 0 && headIsLater(&claim, until) {
		s.releasedUpTo.CompareAndSwap(until, 0)
	}
	if from == nil {
		s.sawHead(&request, &claim, received)
	} else {
		s.times.takeAt = min(s.times.takeAt, received+untilHead(&claim))
		b.route, b.isGivenUp = from.route, s.routes.claimed(from, claim.Messages, !claim.More, s.config.Sink.Route)
	}
	if len(claim.Messages) > 0 {
		s.dispatch(b)
	}
	s.reclaimStrays(claim.Strays)
}

// sawHead notes when what is due and not parked can be taken next.
func (s *shard) sawHead(request *message.ClaimRequest, claim *message.Claim, received time.Duration) {
	switch {
	case claim.More:
		s.times.takeAt = received
	default:
		s.times.takeAt = received + untilHead(claim)
	}
	if request.Max > 0 && len(claim.Messages) == 0 && s.times.takeAt <= received {
		s.times.takeAt = received + time.Millisecond // Due, but nothing was taken.
	}
}

// headIsLater reports whether all that was due until that millisecond was claimed.
func headIsLater(claim *message.Claim, until int64) bool {
	return claim.NextDue.IsZero() || claim.NextDue.UnixMilli() > until
}

// untilHead is how long after the answer the first waiting message is due, as
// far as the store knows. The estimate of Redis' clock that it implies (the
// answer's time and what passed since it was received) is never ahead of that clock.
func untilHead(claim *message.Claim) time.Duration {
	if claim.NextDue.IsZero() {
		return never
	}
	return min(never, max(0, claim.NextDue.Sub(claim.Now)))
}

// extend notes the new deadlines of the claims that the request listed.
func (s *shard) extend(began time.Duration, live []message.ClaimToken) {
	for _, b := range s.live {
		if len(live) == 0 {
			return
		}
		if b.claim.Token != live[0] {
			continue
		}
		live = live[1:]
		if int64(began) < b.deadline.Load() {
			b.deadline.Store(int64(began + s.config.Claims.Timeout))
		}
	}
}

// park decides what goes to the slots of routes that are closed. It does so before
// the loop goes on: a later claim may empty the slot.
func (s *shard) park(b *batch) {
	if !s.routes.isAny.Load() {
		return
	}
	for i := range b.claim.Messages {
		claimed := &b.claim.Messages[i]
		if claimed.Err != nil {
			continue
		}
		if r := s.routes.park(s.config.Sink.Route(&claimed.Message), claimed.Topic); r != nil {
			b.parked = append(b.parked, parking{i, r})
		}
	}
}

// dispatch hands a claim's messages to a runner.
func (s *shard) dispatch(b *batch) {
	s.order.register(b)
	s.live = append(s.live, b)
	s.config.Observer.AddInFlight(s.config.Queue, len(b.claim.Messages))
	s.batches.Go(func() { s.run(b) })
}

func (s *shard) tellEpoch(epoch string) {
	if epoch == s.asking.epoch || s.config.Hooks.OnEpoch == nil {
		return
	}
	s.asking.epoch = epoch
	s.config.Hooks.OnEpoch(epoch)
}

// noLayout waits until somebody made the layout, perhaps us, or took the shard
// away because it was dropped. Which of them it is, OnNoLayout can tell and say.
func (s *shard) noLayout() {
	first := s.asking.layout.Failures() == 0
	s.times.quietUntil = s.now() + s.asking.layout.Next()
	if s.config.Hooks.OnNoLayout == nil {
		if first {
			s.log.Warn("the layout is missing in redis", "event", "claim")
		}
		return
	}
	if s.draining {
		return
	}
	ctx, cancel := context.WithTimeout(s.redis.ctx, s.config.Claims.callTimeout())
	defer cancel()
	s.config.Hooks.OnNoLayout(ctx, s.index)
}

// load reads what is parked in the shard.
func (s *shard) load() {
	ctx, cancel := context.WithTimeout(s.redis.ctx, s.config.Claims.callTimeout())
	defer cancel()
	parked, err := s.services.store.Parked(ctx)
	if err != nil {
		s.redis.silent("claim", err)
		s.times.quietUntil = s.now() + s.asking.redis.Next()
		return
	}
	s.redis.answered()
	s.routes.load(parked, s.now(), !s.isLoaded)
	s.asking.unloaded, s.isLoaded = false, true
}
