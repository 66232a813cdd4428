package poller

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// maxDrainMargin is the longest time kept at the end of a drain for settling
// what was cut short.
const maxDrainMargin = 3 * time.Second

// maxLive is how many claims of a shard may be under way, messages that hang and
// keep theirs among them.
const maxLive = 64

// shard polls one shard. Its goroutines are the loop (run), which alone makes
// claims, and a runner for each batch in flight. They end after drain, or at the
// latest when its context ends and the sink and the store return.
type shard struct {
	*services
	turn     *turn
	lastLook atomic.Int64
	hint     chan struct{} // "look again", of 1
	batches  sync.WaitGroup

	// The loop's own.
	times   timetable
	asking  asking
	holding holding
	live    []*batch // in the order of their claims
	order   order
	ramp    ramp
	flags
}

// flags are what the loop has noticed.
type flags struct {
	draining  bool
	isCrowded bool // the window is full, and wakes us
	isLoaded  bool // the routes were read since the shard is ours
	slotNext  bool // whose turn it is, where both what is due and a slot could be claimed
}

// shutdown is how a shard ends: publishing first, the calls of the store last. Both
// outlive the claiming, in a drain for as long as its budget allows.
type shutdown struct {
	publishCtx                context.Context // ends what is being published
	cancelPublish, cancelCall context.CancelFunc
	stop                      chan struct{} // closed: claim no more, and begin no publish
	stopOnce                  sync.Once
	done                      chan struct{} // closed: all goroutines have ended
}

// newShard makes a shard whose goroutines have not begun. ctx only carries
// values; number is the first claim number.
func newShard(ctx context.Context, shared *common, index int, number uint64) *shard {
	ctx = context.WithoutCancel(ctx)
	log := shared.config.Logger.With("shard", index)
	publishCtx, cancelPublish := context.WithCancel(ctx)
	callCtx, cancelCall := context.WithCancel(ctx)
	settled := make(chan struct{}, 1)
	turn := newTurn(shared.config.Sink.Window, func() { signal(settled) })
	s := &shard{hint: make(chan struct{}, 1), asking: newAsking(number), holding: newHolding(), turn: turn}
	s.services = &services{
		common: shared, index: index, log: log, store: shared.config.Store(index),
		redis:  &redisView{log: log, ctx: callCtx, downShards: &shared.news.redisDownShards},
		routes: newRoutes(log, shared),
		share:  turn.share,
		shutdown: &shutdown{
			publishCtx: publishCtx, cancelPublish: cancelPublish, cancelCall: cancelCall,
			stop: make(chan struct{}), done: make(chan struct{}),
		},
		settled: settled,
	}
	s.lastLook.Store(int64(s.now()))
	return s
}

// loop is the goroutine of the shard: sleep until something is due, a hint, or MaxSleep; claim;
// hand the batch on. It returns when the drain is over.
func (s *shard) loop() {
	defer close(s.shutdown.done)
	defer s.shutdown.cancelPublish()
	defer s.shutdown.cancelCall()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for s.step(timer) {
		s.lastLook.Store(int64(s.now()))
	}
	s.batches.Wait()
	if s.asking.pending != nil {
		s.advance()
	}
	s.end()
}

// step is one turn of the loop, and reports false when the drain is over. No
// error and no panic ends the loop.
func (s *shard) step(timer *time.Timer) (more bool) {
	if s.redis.ctx.Err() != nil {
		return false
	}
	defer func() {
		if cause := recover(); cause != nil {
			logPanic(s.log, "claim", cause)
			s.times.quietUntil = s.now() + s.asking.redis.Next()
			more = true
		}
	}()
	if closed(s.shutdown.stop) && !s.draining {
		s.draining, s.times.quietUntil = true, 0
	}
	if s.asking.pending == nil {
		s.prune()
	}
	if s.draining && s.asking.pending == nil && len(s.live) == 0 {
		return false
	}
	now := s.now()
	mayTake := s.mayTake(now)
	switch wait := s.times.next(s.asking.pending != nil, mayTake) - now; {
	case wait > 0:
		s.sleep(timer, wait, mayTake)
	case s.asking.unloaded && s.holding.mine && s.asking.pending == nil && !s.draining:
		s.load()
	default:
		s.look()
	}
	return true
}

// prune forgets the batches that have ended, and learns what went back to wait.
func (s *shard) prune() {
	kept := s.live[:0]
	for _, b := range s.live {
		if !b.finished() {
			kept = append(kept, b)
			continue
		}
		s.order.forget(b, s.live)
		s.ramp.learn(b, s.config.Claims.Batch)
	}
	clear(s.live[len(kept):])
	s.live = kept
	if again := s.again.Swap(0); again != 0 {
		s.times.takeAt = min(s.times.takeAt, time.Duration(again))
	}
}

// mayTake reports whether messages may be claimed now, if there are any, and
// notes when a slot can be.
func (s *shard) mayTake(now time.Duration) bool {
	if s.draining || !s.holding.mine || s.isCrowded || s.room() == 0 {
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
	if s.releasedUpTo.Load() != 0 {
		return nil, now + never, false
	}
	return s.routes.next(now, s.config.Claims.Batch)
}

// pick chooses what the next claim takes: so many messages of what is due, or of
// a slot; each in turn where both could be.
func (s *shard) pick(now time.Duration) (size int, from *probe) {
	if !s.mayTake(now) || s.asking.unloaded {
		return 0, nil
	}
	room := s.room()
	next, _, isBlocked := s.nextSlot(now)
	isDue := now >= s.times.takeAt && !isBlocked
	switch {
	case next != nil && (!isDue || s.slotNext):
		s.slotNext = false
		return min(room, next.size), next
	case isDue:
		s.slotNext = true
		return room, nil
	default:
		return 0, nil
	}
}

// room is how many messages the next claim may take.
func (s *shard) room() int {
	if s.released.Load() > 0 || len(s.live) >= maxLive {
		return 0
	}
	inFlight := 0
	for _, b := range s.live {
		inFlight += b.left()
	}
	return min(s.config.Claims.Batch, s.config.Claims.Batch*s.config.Claims.InFlight-inFlight, s.ramp.room(len(s.live) == 0))
}

// sleep waits, less long where a hint, something settled or the drain comes first.
func (s *shard) sleep(timer *time.Timer, wait time.Duration, mayTake bool) {
	hint := s.hint
	now := s.now()
	switch {
	case s.holding.byOther && s.asking.pending == nil:
		// The holder may have given it up. A busy producer's hints say the same.
		if soon := s.holding.refusedAt + leastHeld - now; soon > 0 {
			hint, wait = nil, min(wait, soon)
		}
	case !s.times.hintCounts(now, s.asking.pending != nil, mayTake):
		hint = nil // It stays in the channel until it can be followed.
	}
	stop := s.shutdown.stop
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
	case <-s.settled: // Or there is room in the window, or the sink is back.
		s.isCrowded, s.times.pausedUntil = false, 0
	case <-stop:
	case <-s.redis.ctx.Done():
	}
}

// end gives the lease up, so that another instance need not wait for it to lapse.
func (s *shard) end() {
	s.turn.leave()
	s.redis.leave()
	if s.redis.ctx.Err() != nil {
		return
	}
	if err := s.callHandOver(); err != nil {
		s.log.Warn("lease not handed over, it lapses by itself", "event", "drain", "err", err)
	}
}

func (s *shard) callHandOver() (err error) {
	defer recovered(s.log, "drain", &err)
	ctx, cancel := context.WithTimeout(s.redis.ctx, s.config.Claims.callTimeout())
	defer cancel()
	return s.services.store.HandOver(ctx, s.config.Instance)
}

// drain stops claiming, waits for what is in flight until shortly before ctx
// ends, then cuts publishing, and the settling last. It may be called twice.
func (s *shard) drain(ctx context.Context) error {
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, defaultDrain)
		defer cancel()
	}
	s.shutdown.stopOnce.Do(func() { close(s.shutdown.stop) })
	deadline, _ := ctx.Deadline()
	budget := time.Until(deadline)
	margin := min(maxDrainMargin, budget/4)
	defer time.AfterFunc(budget-margin, s.shutdown.cancelPublish).Stop()
	defer time.AfterFunc(budget-margin/4, s.shutdown.cancelCall).Stop()
	select {
	case <-s.shutdown.done:
		return nil
	case <-ctx.Done():
	}
	s.shutdown.cancelPublish()
	s.shutdown.cancelCall()
	if closed(s.shutdown.done) {
		return nil
	}
	return fmt.Errorf("drain shard %d: %w", s.index, ctx.Err())
}
