package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/poller"
	"github.com/delaybridge/delaybridge/internal/store"
)

const (
	heartbeatEvery = time.Second
	firstPause     = 100 * time.Millisecond
	longPause      = 2 * time.Second
)

// queueRunner runs one queue: it waits for Redis, makes the layout, and then
// polls all shards. It owns the goroutine run and what that starts.
type queueRunner struct {
	queue    *store.Queue
	want     store.Layout
	newPoll  func(shards []int) (*poller.Poller, error)
	rdb      redis.UniversalClient
	instance string
	// drain bounds the wait for acknowledgements at a stop.
	drain  time.Duration
	health *health
	logger *slog.Logger
	// fatal ends the program: this Redis must not be used.
	fatal func(error)

	cancel context.CancelFunc
	done   sync.WaitGroup
	mu     sync.Mutex
	poller *poller.Poller
}

// start begins in the background: an unreachable Redis is no reason to fail.
func (r *queueRunner) start(ctx context.Context) {
	ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	r.done.Go(func() { r.run(ctx) })
}

// stop drains the pollers within ctx, then ends the rest.
func (r *queueRunner) stop(ctx context.Context) error {
	defer r.done.Wait()
	defer r.cancel()
	p := r.polling()
	if p == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.drain)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		return fmt.Errorf("drain queue %s: %w", r.queue.Name(), err)
	}
	return nil
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
	shards := make([]int, layout.Shards)
	for i := range shards {
		shards[i] = i
	}
	p, err := r.newPoll(shards)
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
	if ctx.Err() != nil { // stop may not have seen it.
		_ = p.Stop(ctx)
		return
	}
	r.logger.Info("polling", "event", "start", "shards", layout.Shards, "epoch", layout.Epoch)
	var helpers sync.WaitGroup
	helpers.Go(func() { r.beat(ctx) })
	helpers.Go(func() { r.watch(ctx, shards, p) })
	helpers.Wait()
}

// prepare checks Redis and makes the layout, again and again until Redis
// answers or ctx ends.
func (r *queueRunner) prepare(ctx context.Context) (*store.Layout, error) {
	said := false
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		layout, err := r.prepareOnce(ctx)
		switch {
		case err == nil:
			r.health.redisAnswered()
			return layout, nil
		case errors.Is(err, ErrRefused):
			r.fatal(err)
			return nil, err
		case !said && ctx.Err() == nil:
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
	if err := checkRedis(ctx, r.rdb, r.logger); err != nil {
		return nil, err
	}
	layout, err := r.queue.EnsureLayout(ctx, r.want)
	if err == nil && layout.Shards != r.want.Shards {
		r.logger.Warn("shards differ from the configuration, which counts only when a queue is made",
			"event", "start", "shards", layout.Shards, "configured", r.want.Shards)
	}
	return layout, err
}

// remake is called when a shard has lost its meta, as after a wipe of Redis.
func (r *queueRunner) remake(ctx context.Context) {
	want := r.want
	if layout, err := r.queue.Layout(ctx); err == nil {
		want.Shards = layout.Shards
	}
	layout, err := r.queue.EnsureLayout(ctx, want)
	if err != nil {
		r.logger.Error("layout lost, not made again yet", "event", "layout_lost", "err", err)
		return
	}
	r.logger.Error("layout was lost and is made again: redis has lost its messages",
		"event", "layout_lost", "epoch", layout.Epoch)
}

// beat says once a second that this instance lives.
func (r *queueRunner) beat(ctx context.Context) {
	for {
		callCtx, cancel := context.WithTimeout(ctx, store.DefaultTimeout)
		if _, err := r.queue.Heartbeat(callCtx, r.instance, 3*time.Second); err == nil {
			r.health.redisAnswered()
		}
		cancel()
		if !sleep(ctx, heartbeatEvery) {
			callCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), store.DefaultTimeout)
			_ = r.queue.Leave(callCtx, r.instance) // It is forgotten anyway, a minute later.
			cancel()
			return
		}
	}
}

// watch passes wake hints to the poller.
func (r *queueRunner) watch(ctx context.Context, shards []int, p *poller.Poller) {
	hints := store.NewHints(r.rdb)
	hints.Set(r.queue, shards, store.Listener{Wake: p.Wake, Changed: func() {}})
	hints.Run(ctx)
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
