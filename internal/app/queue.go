package app

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/delaybridge/delaybridge/internal/poller"
	"github.com/delaybridge/delaybridge/internal/store"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

const (
	firstPause = 100 * time.Millisecond
	longPause  = 2 * time.Second
	// leaveTime bounds how long a drain waits for saying so to the others.
	leaveTime = time.Second
)

// queueRunner runs one queue: it waits for Redis, makes the layout, and then
// polls its share of the shards. It owns the goroutine run and what that starts.
type queueRunner struct {
	queue    *store.Queue
	want     store.Layout
	newPoll  func() (*poller.Poller, error)
	check    *redisCheck
	hints    *store.Hints
	instance string
	lease    time.Duration
	// drain bounds the wait for acknowledgements at a stop.
	drain   time.Duration
	health  *health
	metrics *telemetry.Metrics
	logger  *slog.Logger
	// fatal ends the program: this Redis must not be used.
	fatal func(error)
	// keeper does what is to be done once for the whole queue; nil is nothing.
	keeper keeper

	cancel context.CancelFunc
	done   sync.WaitGroup
	mu     sync.Mutex
	poller *poller.Poller

	// changed says that somebody came or went, or that the layout has changed; of 1.
	changed chan struct{}
	// made is closed when the layout is known for the first time.
	made chan struct{}
	// rows gets what the pollers know of outbox messages; nil without an outbox.
	rows rowSettler
	// reborn, where not nil, is called when Redis has lost the queue.
	reborn func()

	layout   atomic.Pointer[store.Layout]
	epoch    atomic.Pointer[string] // the last that a shard told
	keeps    atomic.Bool            // this instance is the queue's keeper
	remaking sync.Mutex
	remadeAt time.Time // under remaking
	unmade   bool      // under remaking: it was said that this does not succeed

	// Those of the goroutine run.
	members  members
	assigned []int // nil before the first time
	reloadAt time.Time
	toldAt   time.Time
	sources  sources
	unheard  bool
}

// start begins in the background: an unreachable Redis is no reason to fail.
func (r *queueRunner) start(ctx context.Context) {
	ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	r.done.Go(func() { r.run(ctx) })
}

// stop ends the heartbeats, tells the other instances, which begin at once to
// wait for our shards, and drains: all within the drain timeout.
func (r *queueRunner) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.drain)
	defer cancel()
	r.cancel()
	r.done.Wait()
	p := r.polling()
	if p == nil {
		return nil
	}
	r.leave(ctx)
	if err := p.Stop(ctx); err != nil {
		return fmt.Errorf("drain queue %s: %w", r.queue.Name(), err)
	}
	return nil
}

func (r *queueRunner) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	if err := r.queue.Leave(ctx, r.instance); err != nil {
		r.logger.Warn("the others were not told that this instance ends, they notice", "event", "drain", "err", err)
	}
}

func (r *queueRunner) polling() *poller.Poller {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.poller
}

func (r *queueRunner) run(ctx context.Context) {
	layout, err := r.prepare(ctx)
	if err != nil {
		return
	}
	r.use(layout)
	close(r.made)
	p, err := r.newPoll()
	if err == nil {
		err = p.Start(ctx)
	}
	if err != nil {
		r.fatal(err)
		return
	}
	r.mu.Lock()
	r.poller = p
	r.mu.Unlock()
	r.logger.Info("polling", "event", "start", "shards", layout.Shards, "earlier", joined(layout.Earlier), "epoch", layout.Epoch)
	if r.keeper != nil {
		r.done.Go(func() { r.keep(ctx) })
	}
	r.follow(ctx)
}

// prepare waits until Redis was checked and makes the layout, again and again
// until Redis answers or ctx ends.
func (r *queueRunner) prepare(ctx context.Context) (*store.Layout, error) {
	select {
	case <-r.check.ready:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	said := false
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		layout, err := r.prepareOnce(ctx)
		if err == nil {
			r.health.redisAnswered()
			return layout, nil
		}
		if !said && ctx.Err() == nil {
			said = true
			r.logger.Warn("redis unavailable, trying again", "event", "start", "err", err)
		}
		if !sleep(ctx, pause) {
			return nil, ctx.Err()
		}
	}
}

func (r *queueRunner) prepareOnce(ctx context.Context) (*store.Layout, error) {
	ctx, cancel := context.WithTimeout(ctx, store.MaxCall)
	defer cancel()
	layout, err := r.queue.EnsureLayout(ctx, r.want)
	if layout == nil {
		return nil, err
	}
	// It is in force. A shard that was not reached needs nothing but its poller,
	// and is no reason not to poll those of other nodes.
	if layout.Shards != r.want.Shards {
		r.logger.Warn("shards differ from the configuration, which counts only when a queue is made",
			"event", "start", "shards", layout.Shards, "configured", r.want.Shards)
	}
	return layout, nil
}

// sleep waits and reports false when ctx ends before.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
