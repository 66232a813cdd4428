package poller

import (
	"context"
	"time"

	"github.com/delaybridge/delaybridge/internal/message"
)

// The waits of a shard that nobody has a layout for.
const (
	layoutBackoffInitial = 100 * time.Millisecond
	layoutBackoffLimit   = 5 * time.Second
)

// noneWaits is how far away the head of an empty shard is: MaxSleep comes first.
const noneWaits = 24 * time.Hour

// The waits for another instance's lease. It may be given up any moment, and
// the hint that says so may be lost; a shard is not held by another for long
// while it is ours to poll.
const (
	leastHeld   = 10 * time.Millisecond
	heldInitial = 25 * time.Millisecond
	heldLimit   = 500 * time.Millisecond
)

// freeNumbers is how many outdated numbers in a row are replaced without a pause.
const freeNumbers = 8

// maxReclaims is how many calls reclaim at a time, before the next claim
// renews the lease.
const maxReclaims = 16

// look makes one claim call, of nothing if there is no room, and acts on the
// answer. A request stays pending, token and all, until it is answered.
func (s *shard) look() {
	began := s.now()
	if s.pending == nil {
		s.ask(began)
	}
	claim, err := s.callClaim(*s.pending)
	if err != nil {
		s.redisSilent("claim", err)
		s.quietUntil = s.now() + s.redisPause.next()
		if s.draining {
			s.advance() // The next holder reclaims what it may have taken.
		}
		return
	}
	s.redisAnswered()
	s.redisPause.reset()
	s.renewAt = s.nextCommon(began)
	s.act(began, claim)
}

// ask makes the next request pending.
func (s *shard) ask(now time.Duration) {
	request := message.ClaimRequest{
		Token:   message.ClaimToken{Instance: s.Instance, Number: s.number},
		Timeout: s.ClaimTimeout,
		Lease:   s.Lease,
	}
	if now >= s.pausedUntil {
		request.Max = s.room()
	}
	for _, b := range s.live {
		if !b.forsaken.Load() && !b.finished() {
			request.Live = append(request.Live, b.claim.Token)
		}
	}
	if request.Max > 0 {
		drainSignal(s.hint) // What it hints at, this claim sees.
	}
	request.Quiet = request.Max == 0 || now < s.takeAt
	s.pending, s.firstAsked = &request, now
}

func (s *shard) callClaim(request message.ClaimRequest) (claim message.Claim, err error) {
	defer recovered(s.log, "claim", &err)
	ctx, cancel := context.WithTimeout(s.callCtx, s.callTimeout())
	defer cancel()
	return s.Store.Claim(ctx, s.index, request)
}

// advance gives up the pending request and its number.
func (s *shard) advance() {
	s.pending = nil
	s.number++
}

func (s *shard) act(began time.Duration, claim message.Claim) {
	if claim.State != message.ClaimOutdated {
		s.outdated = 0
	}
	if claim.State != message.ClaimNoLayout {
		s.layoutPause.reset()
	}
	if s.held = claim.State == message.ClaimHeld; !s.held {
		s.heldPause.reset()
	}
	switch claim.State {
	case message.ClaimGranted:
		s.granted(began, claim)
	case message.ClaimHeld:
		s.lease.until.Store(0)
		s.advance()
		s.takeAt = 0
		s.isOthers(began, s.now(), claim.HeldFor)
		s.quietUntil = s.heldAt + max(leastHeld, min(claim.HeldFor, s.heldPause.next()))
	case message.ClaimReclaimFirst:
		s.mine, s.left = false, true
		s.reclaimForeign()
	case message.ClaimOutdated:
		// In growing steps: the number may be far behind.
		s.advance()
		s.number += 1<<min(s.outdated, 20) - 1
		s.outdated++
		s.takeAt, s.renewAt = 0, 0
		if s.outdated > freeNumbers {
			s.quietUntil = s.now() + s.redisPause.next()
		}
	case message.ClaimNoLayout:
		s.advance()
		s.noLayout()
	default:
		s.advance()
		s.log.Error("claim answered with an unknown state", "event", "claim", "state", int(claim.State))
		s.quietUntil = s.now() + s.redisPause.next()
	}
}

// granted takes the answer of a claim that held the lease.
func (s *shard) granted(began time.Duration, claim message.Claim) {
	received := s.now()
	request := *s.pending
	claim.Token = request.Token
	s.advance()
	s.isMine(received)
	s.redisOffset.Store(claim.Now.UnixNano() - int64(received))
	s.renew(began)
	s.extend(began, received, request.Live)
	s.tellEpoch(claim.Epoch)
	s.takeAt = received + untilNext(claim)
	if len(claim.Messages) > 0 {
		s.dispatch(claim, received)
	} else if request.Max > 0 && s.takeAt <= received {
		s.takeAt = received + time.Millisecond // Due, but nothing was taken.
	}
	if claim.Expired && received >= s.reclaimAt {
		s.reclaimExpired()
	}
}

// untilNext is how long after the answer there is something to take, as far as
// the store knows. The estimate of Redis' clock that it implies (the answer's
// time and what passed since it was received) is never ahead of that clock.
func untilNext(claim message.Claim) time.Duration {
	switch {
	case claim.More:
		return 0
	case claim.NextDue.IsZero():
		return noneWaits
	default:
		return min(noneWaits, max(0, claim.NextDue.Sub(claim.Now)))
	}
}

// renew prolongs the lease from before the call. A lapsed one is another one:
// batches of the old one must not be published any more.
func (s *shard) renew(began time.Duration) {
	if int64(began) >= s.lease.until.Load() {
		s.lease = &lease{}
	}
	s.lease.until.Store(int64(began + s.Lease))
}

// extend notes the new deadlines of the claims that the request listed.
func (s *shard) extend(began, received time.Duration, live []message.ClaimToken) {
	for _, b := range s.live {
		if len(live) == 0 {
			return
		}
		if b.claim.Token != live[0] {
			continue
		}
		live = live[1:]
		b.expired.Store(int64(received + s.ClaimTimeout))
		if int64(began) < b.deadline.Load() {
			b.deadline.Store(int64(began + s.ClaimTimeout))
		}
	}
}

// dispatch hands a claim's messages to a goroutine of their own.
func (s *shard) dispatch(claim message.Claim, received time.Duration) {
	b := &batch{claim: claim, lease: s.lease, probe: s.sinkDown, done: make(chan struct{})}
	b.deadline.Store(int64(s.firstAsked + s.ClaimTimeout))
	b.expired.Store(int64(received + s.ClaimTimeout))
	b.after = s.order.register(b)
	s.live = append(s.live, b)
	s.batches.Go(func() { s.process(b) })
	s.Observer.AddInFlight(s.Queue, len(claim.Messages))
}

func (s *shard) tellEpoch(epoch string) {
	if epoch == s.epoch || s.OnEpoch == nil {
		return
	}
	s.epoch = epoch
	s.OnEpoch(epoch)
}

// noLayout waits until somebody made the layout, perhaps us, or took the shard
// away because it was dropped. Which of them it is, OnNoLayout can tell and say.
func (s *shard) noLayout() {
	first := s.layoutPause.failures == 0
	s.quietUntil = s.now() + s.layoutPause.next()
	if s.OnNoLayout == nil {
		if first {
			s.log.Warn("the layout is missing in redis", "event", "claim")
		}
		return
	}
	if s.draining {
		return
	}
	ctx, cancel := context.WithTimeout(s.callCtx, s.callTimeout())
	defer cancel()
	s.OnNoLayout(ctx, s.index)
}
