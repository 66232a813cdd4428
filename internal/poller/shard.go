package poller

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// shard polls one shard. Its goroutines are the loop, which alone makes claims,
// and a runner for each batch in flight. They end after drain, or at the latest
// when its context ends and the sink and the store return.
//
// The loop is a turn over parts: each knows one thing, and none knows another.
type shard struct {
	services *services
	gains    *gains
	lastLook atomic.Int64
	hint     chan struct{} // "look again", of 1

	// The loop's own.
	draining bool
	paused   *atomic.Pointer[pauses] // the queue's
	heeded   *pauses                 // what is heeded of it
	times    timetable               // when to call
	holding  holding                 // whether the shard is ours
	turn     *turn                   // room in the sink's window
	asking   asking                  // what was asked for, and has no answer yet
	inFlight inFlight                // the batches
}

// newShard makes a shard whose goroutines have not begun. ctx only carries
// values; number is the first claim number.
func newShard(ctx context.Context, shared *common, index int, number uint64) *shard {
	config, log := &shared.config, shared.config.Logger.With("shard", index)
	ending, settled := newShutdown(ctx), make(chan struct{}, 1)
	q := &quota{rates: shared.rates, shard: index, wake: func() { signal(settled) }}
	s := &shard{
		services: &services{
			config: config, policy: &shared.policy, clock: shared.clock, news: &shared.news, index: index, log: log,
			redis:    &redisView{config: config, store: config.Store(index), log: log, ctx: ending.callCtx, downShards: &shared.news.redisDownShards},
			routes:   newRoutes(log, shared, q),
			quota:    q,
			shutdown: ending, settled: settled,
		},
		gains: &shared.gains, paused: &shared.paused, hint: make(chan struct{}, 1), asking: newAsking(number), holding: newHolding(),
		inFlight: newInFlight(), turn: newTurn(config.Sink.Window, func() { signal(settled) }),
	}
	s.lastLook.Store(int64(s.services.now()))
	return s
}

// loop is the goroutine of the shard: sleep until something is due, a hint, or MaxSleep; claim;
// hand the batch on. It returns when the drain is over.
func (s *shard) loop() {
	defer s.services.shutdown.end()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for s.step(timer) {
		s.lastLook.Store(int64(s.services.now()))
	}
	s.inFlight.runners.Wait()
	if s.asking.isPending() {
		s.advance()
	}
	s.end()
}

// step is one turn of the loop, and reports false when the drain is over. No
// error and no panic ends the loop.
func (s *shard) step(timer *time.Timer) (more bool) {
	if s.services.redis.ctx.Err() != nil {
		return false
	}
	defer func() {
		if cause := recover(); cause != nil {
			logPanic(s.services.log, "claim", cause)
			s.backOff()
			more = true
		}
	}()
	if s.services.shutdown.isStopping() && !s.draining {
		s.draining, s.times.quietUntil = true, 0
	}
	s.heed()
	if !s.asking.isPending() {
		if pause := s.inFlight.prune(s.services.config.Claims.Batch); pause > 0 {
			s.times.unconfirmedUntil = s.services.now() + pause
		}
		if at, isAny := s.services.returns.takeClaimable(); isAny {
			s.times.takeAt = min(s.times.takeAt, at)
		}
	}
	if s.draining && !s.asking.isPending() && len(s.inFlight.live) == 0 {
		return false
	}
	now := s.services.now()
	mayTake := s.mayTake(now)
	switch wait := s.times.next(s.asking.isPending(), mayTake) - now; {
	case wait > 0:
		s.sleep(timer, wait, mayTake)
	case s.asking.unloaded && s.holding.mine && !s.asking.isPending() && !s.draining:
		s.load()
	default:
		s.look()
	}
	return true
}

// mayTake reports whether messages may be claimed now, if there are any, and
// notes when a slot can be.
func (s *shard) mayTake(now time.Duration) bool {
	if s.draining || s.isPaused() || !s.holding.mine || s.turn.isCrowded || s.room() == 0 {
		return false
	}
	if s.asking.unloaded {
		s.times.probeAt = 0
		return true
	}
	_, s.times.probeAt, s.times.isBlocked = s.nextSlot(now)
	return true
}

// nextSlot is the slot to claim from, if any, see [routes.next].
func (s *shard) nextSlot(now time.Duration) (next *probe, at time.Duration, isBlocked bool) {
	if s.services.returns.keepsSlots() {
		return nil, now + never, false
	}
	return s.services.routes.next(now, s.services.config.Claims.Batch)
}

// pick chooses what the next claim takes: so many messages of what is due, or of
// a slot; each in turn where both could be.
func (s *shard) pick(now time.Duration) (a allowance, from *probe) {
	if !s.mayTake(now) || s.asking.unloaded {
		return allowance{}, nil
	}
	next, _, isBlocked := s.nextSlot(now)
	isDue := now >= s.times.takeAt && !isBlocked
	inFlight := s.inFlight.messages()
	switch {
	case next != nil && (!isDue || s.asking.slotNext):
		a, from = s.services.quota.allow(next.limited, min(s.room(), next.size), inFlight), next
	case isDue:
		a = s.services.quota.allow("", s.room(), inFlight)
	default:
		return allowance{}, nil
	}
	if a.messages == 0 {
		if !s.services.quota.mayTake("", inFlight) { // It is woken.
			s.times.limitedUntil = now + askAgain
		}
		return allowance{}, nil
	}
	s.asking.slotNext = from == nil
	return a, from
}

// room is how many messages the next claim may take.
func (s *shard) room() int {
	if s.services.returns.isUnderWay() {
		return 0
	}
	return s.inFlight.room(&s.services.config.Claims)
}

// sleep waits, less long where a hint, something settled or the drain comes first.
func (s *shard) sleep(timer *time.Timer, wait time.Duration, mayTake bool) {
	hint := s.hint
	now := s.services.now()
	switch {
	case s.holding.byOther && !s.asking.isPending():
		// The holder may have given it up. A busy producer's hints say the same.
		if soon := s.holding.refusedAt + leastHeld - now; soon > 0 {
			hint, wait = nil, min(wait, soon)
		}
	case !s.times.hintCounts(now, s.asking.isPending(), mayTake):
		hint = nil // It stays in the channel until it can be followed.
	}
	stop := s.services.shutdown.stop
	if s.draining {
		stop = nil
	}
	timer.Reset(wait)
	select {
	case <-timer.C:
	case <-hint:
		s.times.takeAt = 0
		if s.holding.byOther {
			s.times.quietUntil, s.times.renewAt = 0, 0
		}
	case <-s.services.settled: // Or there is room in the window or by a rate, or the sink is back.
		s.turn.isCrowded, s.times.pausedUntil, s.times.limitedUntil = false, 0, 0
	case <-stop:
	case <-s.services.redis.ctx.Done():
	}
}

// end gives the lease up, so that another instance need not wait for it to lapse.
func (s *shard) end() {
	s.turn.leave()
	s.services.quota.leave()
	s.services.redis.leave()
	if s.services.redis.ctx.Err() != nil {
		return
	}
	if err := s.services.redis.handOver(); err != nil {
		s.services.log.Warn("lease not handed over, it lapses by itself", "event", "drain", "err", err)
	}
}

// drain ends the shard, see [shutdown.drain].
func (s *shard) drain(ctx context.Context) error {
	if err := s.services.shutdown.drain(ctx); err != nil {
		return fmt.Errorf("drain shard %d: %w", s.services.index, err)
	}
	return nil
}
