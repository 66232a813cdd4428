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

// remakePause is how long a layout that was just looked after is left alone.
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
		if err == nil && failed {
			r.logger.Info("upkeep of the layout works again", "event", "layout")
		}
		failed = err != nil
	}
}

func (r *queueRunner) keepOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, store.MaxCall)
	defer cancel()
	err := r.keeper.Step(ctx)
	if errors.Is(err, store.ErrNoLayout) {
		r.remake(ctx)
		return nil
	}
	return err
}

// use makes the layout the one whose shards are assigned.
func (r *queueRunner) use(layout *store.Layout) {
	old := r.layout.Swap(layout)
	r.metrics.Layout(r.queue.Name(), layout.Epoch, layout.Shards)
	if old == nil {
		return
	}
	fields := []any{
		"event", "layout", "epoch", layout.Epoch, "shards", layout.Shards, "earlier", joined(layout.Earlier),
	}
	switch {
	case !layout.SameLife(old):
		r.logger.Error("the queue was lost and is made again: redis has lost its messages",
			"event", "layout_lost", "epoch", layout.Epoch, "shards", layout.Shards)
		if r.reborn != nil {
			r.reborn()
		}
	case layout.Epoch != old.Epoch:
		r.logger.Info("layout changed", fields...)
	case layout.Next != old.Next && layout.Next != 0:
		r.logger.Info("layout change begun", append(fields, "next", layout.Next)...)
	case len(layout.Earlier) < len(old.Earlier):
		r.logger.Info("earlier layouts have drained and are forgotten", append(fields, "dropped", old.InUse()-layout.InUse())...)
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

// reload reads the layout again.
func (r *queueRunner) reload(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, store.DefaultTimeout)
	defer cancel()
	layout, err := r.queue.LoadLayout(ctx)
	if errors.Is(err, store.ErrNoLayout) {
		r.remake(ctx)
	}
	if err != nil {
		return false
	}
	r.reloadAt = time.Now().Add(reloadEvery)
	r.use(layout)
	return true
}

// noMeta is called when a claim has found no meta of a shard: it was dropped by
// a change of the layout that we have not heard of yet, or Redis has lost it.
func (r *queueRunner) noMeta(ctx context.Context, _ int) { r.remake(ctx) }

// remake repairs what Redis has lost of the layout: shards, or all of it. What
// was not lost it leaves alone. One call at a time is enough for all shards.
func (r *queueRunner) remake(ctx context.Context) {
	if !r.remaking.TryLock() {
		return
	}
	defer r.remaking.Unlock()
	if time.Since(r.remadeAt) < remakePause {
		return // The other shards' claims that were answered before.
	}
	lost, err := r.queue.Repair(ctx)
	gone := errors.Is(err, store.ErrNoLayout)
	if gone {
		lost, err = r.makeAgain(ctx)
	}
	switch {
	case err == nil:
		r.unmade, r.remadeAt = false, time.Now()
		if len(lost) > 0 {
			r.sayLost(lost)
		}
		r.notice()
	case !r.unmade && (gone || len(lost) > 0) && ctx.Err() == nil:
		r.unmade = true
		r.logger.Error("redis has lost the layout or shards of it, which cannot be made again yet",
			"event", "layout_lost", "shards", len(lost), "which", joined(lost), "err", err)
	}
}

// makeAgain makes a layout that is not there any more. Where shards still know
// it, it is the one of before, without those that it returns; else another one,
// which [queueRunner.use] tells of.
func (r *queueRunner) makeAgain(ctx context.Context) (lost []int, err error) {
	old, want := r.layout.Load(), r.want
	want.Shards = old.Shards
	missing, err := r.queue.Missing(ctx, old)
	if err != nil {
		return nil, err
	}
	layout, err := r.queue.EnsureLayout(ctx, want)
	if err != nil || !layout.SameLife(old) {
		return nil, err
	}
	r.logger.Error("redis has lost the layout, which is restored from the shards",
		"event", "layout_lost", "epoch", layout.Epoch)
	return missing, nil
}

// sayLost tells of shards that Redis had lost.
func (r *queueRunner) sayLost(lost []int) {
	r.logger.Error("redis has lost shards, and the messages in them; they are made again, empty",
		"event", "layout_lost", "shards", len(lost), "which", joined(lost))
}
