package app

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/hints"
	"github.com/delaybridge/delaybridge/internal/jobs"
	"github.com/delaybridge/delaybridge/internal/membership"
	"github.com/delaybridge/delaybridge/internal/poller"
)

// queueRunner runs one queue: when Redis was checked, its member makes the layout
// and keeps the poller at its share of the shards. It owns the goroutine run.
type queueRunner struct {
	queue   *store.Queue
	member  *membership.Member
	newPoll func() (*poller.Poller, error)
	check   *redisCheck
	jobs    *jobs.Runner
	durable *durabilityWatch // nil where nothing is asked
	// beside is what runs, until the end, once the layout is made.
	beside   []func(ctx context.Context)
	settings settings
	logger   *slog.Logger
	// fatal ends the program.
	fatal func(error)

	cancel context.CancelFunc
	done   sync.WaitGroup
	// poller is nil until the layout is made; then made is closed.
	poller atomic.Pointer[poller.Poller]
	made   chan struct{}

	// rows gets what the pollers know of outbox messages; nil without an outbox.
	rows rowSettler
	// reborn, where not nil, is called when Redis has lost the queue.
	reborn func()
}

// start begins in the background: an unreachable Redis is no reason to fail.
func (r *queueRunner) start(ctx context.Context) {
	ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	r.done.Go(func() {
		if err := r.run(ctx); err != nil {
			r.fatal(err)
		}
	})
}

// stop ends the heartbeats, tells the other instances, which begin at once to
// wait for our shards, and drains: all within the drain timeout.
func (r *queueRunner) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.settings.drain)
	defer cancel()
	r.cancel()
	r.done.Wait()
	p := r.poller.Load()
	if p == nil {
		return nil
	}
	r.member.Leave(ctx)
	if err := p.Stop(ctx); err != nil {
		return fmt.Errorf("drain queue %s: %w", r.queue.Name(), err)
	}
	return nil
}

// run polls until ctx ends. The polling outlives it: stop ends it.
func (r *queueRunner) run(ctx context.Context) error {
	select {
	case <-r.check.ready:
	case <-ctx.Done():
		return nil
	}
	layout, err := r.member.Prepare(ctx)
	if err != nil {
		return nil //nolint:nilerr // It is the end of ctx.
	}
	close(r.made)
	for _, run := range r.beside {
		r.done.Go(func() { run(ctx) })
	}
	if r.durable != nil {
		r.done.Go(func() { r.durable.run(ctx) })
	}
	p, err := r.newPoll()
	if err == nil {
		err = p.Start(ctx)
	}
	if err != nil {
		return err
	}
	r.polls(p)
	r.logger.Info("polling", "event", "start", "shards", layout.Shards, "earlier", fmt.Sprint(layout.Earlier), "epoch", layout.Epoch)
	return r.member.Run(ctx, assigned{p})
}

// assigned is the poller as the member knows it.
type assigned struct{ *poller.Poller }

// Obtained implements [membership.Poller].
func (a assigned) Obtained() membership.Obtained { return membership.Obtained(a.Poller.Obtained()) }

// hear has the hints of the shards passed on. One of a change may be of a job, too.
func (r *queueRunner) hear(subscriber *hints.Subscriber) func(shards []int, changed func()) {
	return func(shards []int, changed func()) {
		all := func() { changed(); r.jobs.Wake() }
		subscriber.Set(r.queue.Keys(), shards, hints.Listener{Wake: r.poller.Load().Wake, Changed: all})
	}
}

// wasReborn is called when Redis has lost the queue.
func (r *queueRunner) wasReborn() {
	if r.reborn != nil {
		r.reborn()
	}
}

// polled are the shards that this instance polls now.
func (r *queueRunner) polled() []int {
	if p := r.poller.Load(); p != nil {
		return p.Shards()
	}
	return nil
}
