package app

import (
	"context"
	"errors"
	"time"

	"github.com/delaybridge/delaybridge/internal/store"
)

// reloadEvery is how often the layout is read again where nothing tells of a
// change: an instance that polls no shard of a queue may miss all that does.
const reloadEvery = 10 * time.Second

// remakePause is how long a layout that was just made is not made again.
const remakePause = time.Second

// keeper does what one instance does for a whole queue.
type keeper interface {
	// Step is one bounded step; it is called again a second later.
	Step(ctx context.Context) error
}

// keep lets the keeper work while this instance is the one that does so. It is
// a goroutine of its own, so that a slow step holds up no heartbeat.
func (r *queueRunner) keep(ctx context.Context) {
	failed := false
	for sleep(ctx, heartbeatEvery) {
		if !r.keeps.Load() {
			continue
		}
		err := r.keepOnce(ctx)
		if err != nil && !failed && ctx.Err() == nil {
			r.logger.Warn("upkeep of the layout failed, trying again", "event", "layout", "err", err)
		}
		failed = err != nil
	}
}

func (r *queueRunner) keepOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, store.MaxCall)
	defer cancel()
	return r.keeper.Step(ctx)
}

// use makes the layout the one whose shards are assigned.
func (r *queueRunner) use(layout *store.Layout) {
	old := r.layout.Swap(layout)
	r.metrics.Layout(r.queue.Name(), layout.Epoch, layout.Shards)
	if old != nil && (old.Epoch != layout.Epoch || old.Polled() != layout.Polled()) {
		r.logger.Info("layout changed", "event", "layout", "epoch", layout.Epoch,
			"shards", layout.Shards, "earlier", layout.Earlier, "next", layout.Next)
	}
}

// sawEpoch is told what a shard's claim answered with. It never blocks.
func (r *queueRunner) sawEpoch(epoch string) {
	r.epoch.Store(&epoch)
	if layout := r.layout.Load(); layout != nil && layout.Epoch != epoch {
		r.notice()
	}
}

// layoutDue reports whether the layout is to be read again: after a hint, while
// it changes, and now and then.
func (r *queueRunner) layoutDue(now time.Time, changed bool) bool {
	layout, epoch := r.layout.Load(), r.epoch.Load()
	changing := layout.Next != 0 || len(layout.Earlier) > 0 || epoch != nil && *epoch != layout.Epoch
	return changed || changing || !now.Before(r.reloadAt)
}

// reload reads the layout again. Where there is none any more, the shards'
// pollers see to it.
func (r *queueRunner) reload(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, store.DefaultTimeout)
	defer cancel()
	layout, err := r.queue.LoadLayout(ctx)
	if err != nil {
		return false
	}
	r.reloadAt = time.Now().Add(reloadEvery)
	r.use(layout)
	return true
}

// remake is called when a shard has no meta: it was dropped by a change of the
// layout, or Redis was wiped, and the layout is made again. One call at a time
// is enough for all shards.
func (r *queueRunner) remake(ctx context.Context, shard int) {
	if !r.remaking.TryLock() {
		return
	}
	defer r.remaking.Unlock()
	if time.Since(r.remadeAt) < remakePause {
		return // The other shards' claims that were answered before.
	}
	old, want := r.layout.Load(), r.want
	want.Shards = old.Shards
	found, err := r.queue.LoadLayout(ctx)
	switch {
	case err == nil && shard >= found.Polled():
		r.notice()
		return
	case err != nil && !errors.Is(err, store.ErrNoLayout):
		return // Redis is away again, the poller says so.
	}
	layout, err := r.queue.EnsureLayout(ctx, want)
	switch {
	case err != nil:
		r.logger.Error("layout lost, not made again yet", "event", "layout_lost", "err", err)
		return
	case layout.Epoch == old.Epoch:
		r.logger.Error("a shard had lost its layout, which is made again: redis has lost its messages",
			"event", "layout_lost", "shard", shard, "epoch", layout.Epoch)
	default:
		r.logger.Error("layout was lost and is made again: redis has lost its messages",
			"event", "layout_lost", "epoch", layout.Epoch)
	}
	r.remadeAt = time.Now()
	r.notice()
}
