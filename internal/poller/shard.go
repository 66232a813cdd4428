package poller

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/delaybridge/delaybridge/internal/message"
)

// shard polls one shard. Its goroutines are the loop (run), which alone makes
// claims and uses the fields under "the loop's own", and one for each batch in
// flight (process), at most InFlight. They end after drain, or at the latest
// when its context ends and the sink and the store return.
type shard struct {
	*common
	index int
	log   *slog.Logger

	// publishCtx ends publishing, callCtx the calls of the store: both outlive
	// the claiming, in a drain for as long as its budget allows.
	publishCtx, callCtx       context.Context
	cancelPublish, cancelCall context.CancelFunc
	stop                      chan struct{} // closed: claim no more
	stopOnce                  sync.Once
	done                      chan struct{} // closed: all goroutines have ended
	hint                      chan struct{} // "look again", of 1
	batchDone                 chan struct{} // "a batch has finished", of 1
	batches                   sync.WaitGroup

	lastLook    atomic.Int64
	redisOffset atomic.Int64 // Redis' clock, in Unix nanoseconds, minus ours
	redisDown   atomic.Bool

	// The loop's own.
	number     uint64
	pending    *message.ClaimRequest
	firstAsked time.Duration // when pending was first sent
	live       []*batch      // in the order of their claims
	order      order
	barrier    bool // no more claims until nothing is live, see order.forget
	lease      *lease
	draining   bool
	timer      *time.Timer
	sinkState

	// Instants of the shard's clock: when to take messages, when to claim in any
	// case, before when to take nothing, to call nothing, not to reclaim.
	takeAt, renewAt, pausedUntil, quietUntil, reclaimAt time.Duration
	redisPause, layoutPause, reclaimPause, heldPause    backoff
	outdated                                            int
	holding
	epoch string // the last that OnEpoch was told
}

// newShard makes a shard whose goroutines have not begun. ctx only carries
// values; number is the first claim number.
func newShard(ctx context.Context, shared *common, index int, number uint64) *shard {
	ctx = context.WithoutCancel(ctx)
	s := &shard{
		common: shared, index: index, number: number,
		log:       shared.Logger.With("shard", index),
		stop:      make(chan struct{}),
		done:      make(chan struct{}),
		hint:      make(chan struct{}, 1),
		batchDone: make(chan struct{}, 1),
		lease:     &lease{},
		sinkState: sinkState{
			sinkPause: backoff{initial: sinkBackoffInitial, limit: sinkBackoffLimit},
			shaky:     backoff{initial: shakyInitial, limit: shakyLimit},
		},
		redisPause:   backoff{initial: redisBackoffInitial, limit: redisBackoffLimit},
		layoutPause:  backoff{initial: layoutBackoffInitial, limit: layoutBackoffLimit},
		reclaimPause: backoff{initial: leastHeld, limit: time.Second},
		heldPause:    backoff{initial: heldInitial, limit: heldLimit},
	}
	s.publishCtx, s.cancelPublish = context.WithCancel(ctx)
	s.callCtx, s.cancelCall = context.WithCancel(ctx)
	s.lastLook.Store(int64(s.now()))
	return s
}

// run is the loop: sleep until something is due, a hint, or MaxSleep; claim;
// hand the batch on. It returns when the drain is over.
func (s *shard) run() {
	defer close(s.done)
	defer s.cancelPublish()
	defer s.cancelCall()
	s.timer = time.NewTimer(0)
	defer s.timer.Stop()
	for s.step() {
		s.lastLook.Store(int64(s.now()))
	}
	s.batches.Wait()
	if s.pending != nil {
		s.advance()
	}
	s.end()
}

// step is one turn of the loop, and reports false when the drain is over. No
// error and no panic ends the loop.
func (s *shard) step() (more bool) {
	if s.callCtx.Err() != nil {
		return false
	}
	defer func() {
		if cause := recover(); cause != nil {
			logPanic(s.log, "claim", cause)
			s.quietUntil = s.now() + s.redisPause.next()
			more = true
		}
	}()
	if closed(s.stop) && !s.draining {
		s.draining, s.quietUntil = true, 0
	}
	if s.pending == nil {
		s.prune()
	}
	if s.draining && s.pending == nil && len(s.live) == 0 {
		return false
	}
	if wait := s.untilLook(); wait > 0 {
		s.sleep(wait)
	} else {
		s.look()
	}
	return true
}

// prune forgets the batches that have finished.
func (s *shard) prune() {
	kept := s.live[:0]
	for _, b := range s.live {
		if !b.finished() {
			kept = append(kept, b)
			continue
		}
		if s.order.forget(b) {
			s.barrier = true
		}
		s.takeAt = min(s.takeAt, b.again)
		s.learn(b)
	}
	clear(s.live[len(kept):])
	s.live = kept
	if len(s.live) == 0 {
		s.barrier = false
	}
}

// untilLook is how long the next claim can wait.
func (s *shard) untilLook() time.Duration {
	now := s.now()
	if now < s.quietUntil || s.pending != nil {
		return s.quietUntil - now
	}
	at := s.renewAt
	if s.room() > 0 {
		at = min(at, max(s.takeAt, s.pausedUntil))
	}
	return at - now
}

// sleep waits, less long where a hint, a finished batch or the drain comes first.
func (s *shard) sleep(wait time.Duration) {
	hint := s.hint
	switch now := s.now(); {
	case s.held && s.pending == nil:
		// The holder may have given it up. A busy producer's hints say the same.
		if soon := s.heldAt + leastHeld - now; soon > 0 {
			hint, wait = nil, min(wait, soon)
		}
	case s.pending != nil || now < s.quietUntil || now < s.pausedUntil || s.room() == 0:
		hint = nil // It stays in the channel until it can be followed.
	}
	stop := s.stop
	if s.draining {
		stop = nil
	}
	s.timer.Reset(wait)
	select {
	case <-s.timer.C:
	case <-hint:
		s.takeAt = 0
		if s.held {
			s.quietUntil, s.renewAt = 0, 0
		}
	case <-s.batchDone:
	case <-stop:
	case <-s.callCtx.Done():
	}
}

// end gives the lease up, so that another instance need not wait for it to lapse.
func (s *shard) end() {
	if s.sinkDown {
		s.sinkDown = false
		s.sinkLeft()
	}
	if s.redisDown.Swap(false) {
		s.redisLeft()
	}
	if s.callCtx.Err() != nil {
		return
	}
	if err := s.callHandOver(); err != nil {
		s.log.Warn("lease not handed over, it lapses by itself", "event", "drain", "err", err)
	}
}

func (s *shard) callHandOver() (err error) {
	defer recovered(s.log, "drain", &err)
	ctx, cancel := context.WithTimeout(s.callCtx, s.callTimeout())
	defer cancel()
	return s.Store.HandOver(ctx, s.index, s.Instance)
}

// drain stops claiming, waits for what is in flight until shortly before ctx
// ends, then cuts publishing, and the settling last. It may be called twice.
func (s *shard) drain(ctx context.Context) error {
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, defaultDrain)
		defer cancel()
	}
	s.stopOnce.Do(func() { close(s.stop) })
	deadline, _ := ctx.Deadline()
	budget := time.Until(deadline)
	margin := min(maxDrainMargin, budget/4)
	defer time.AfterFunc(budget-margin, s.cancelPublish).Stop()
	defer time.AfterFunc(budget-margin/4, s.cancelCall).Stop()
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
	}
	s.cancelPublish()
	s.cancelCall()
	if closed(s.done) {
		return nil
	}
	return fmt.Errorf("drain shard %d: %w", s.index, ctx.Err())
}
