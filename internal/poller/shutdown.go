package poller

import (
	"context"
	"sync"
	"time"
)

// maxDrainMargin is the longest time kept at the end of a drain for settling
// what was cut short.
const maxDrainMargin = 3 * time.Second

// shutdown is how a shard ends: publishing first, the calls of the store last. Both
// outlive the claiming, in a drain for as long as its budget allows.
type shutdown struct {
	publishCtx, callCtx       context.Context // end what is being published, and the calls of the store
	cancelPublish, cancelCall context.CancelFunc
	stop                      chan struct{} // closed: claim no more, and begin no publish
	stopOnce                  sync.Once
	done                      chan struct{} // closed: all goroutines have ended
}

// newShutdown begins nothing; ctx only carries values.
func newShutdown(ctx context.Context) *shutdown {
	ctx = context.WithoutCancel(ctx)
	s := &shutdown{stop: make(chan struct{}), done: make(chan struct{})}
	s.publishCtx, s.cancelPublish = context.WithCancel(ctx)
	s.callCtx, s.cancelCall = context.WithCancel(ctx)
	return s
}

// isStopping reports whether nothing is to begin any more.
func (s *shutdown) isStopping() bool { return closed(s.stop) }

// isCut reports whether publishing was cut short.
func (s *shutdown) isCut() bool { return s.publishCtx.Err() != nil }

// drain stops claiming, waits for what is in flight until shortly before ctx
// ends, then cuts publishing, and the settling last. It may be called twice.
func (s *shutdown) drain(ctx context.Context) error {
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
	return ctx.Err()
}

// end lets go of what a shard whose goroutines end does not need any more.
func (s *shutdown) end() {
	s.cancelCall()
	s.cancelPublish()
	close(s.done)
}
