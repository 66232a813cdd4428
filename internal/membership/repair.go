package membership

import (
	"context"
	"errors"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// repairPause is how long a layout that was just looked after is left alone.
const repairPause = time.Second

// repair gives back what Redis has lost of the layout: shards, or all of it.
// What was not lost it leaves alone. One call at a time is enough for all shards.
func (l *layouts) repair(ctx context.Context) {
	if l.inUse.Load() == nil || !l.repairing.TryLock() {
		return
	}
	defer l.repairing.Unlock()
	if time.Since(l.repairedAt) < repairPause {
		return // The other shards' claims that were answered before.
	}
	now := time.Now()
	l.lostAt.Store(&now)
	lost, err := l.config.Registry.Repair(ctx)
	gone := errors.Is(err, store.ErrNoLayout)
	if gone {
		err = l.makeAgain(ctx)
	}
	switch {
	case err == nil:
		l.failing, l.repairedAt = false, time.Now()
		l.notice() // It tells what was lost, see births.
	case !l.failing && (gone || len(lost) > 0) && ctx.Err() == nil:
		l.failing = true
		l.config.Logger.Error("redis has lost the layout or shards of it, which cannot be made again yet",
			"event", "layout_lost", "shards", len(lost), "which", joined(lost), "err", err)
	}
}

// makeAgain makes a layout that is not there any more. Where shards still know
// it, it is the one of before, under another epoch if any was lost; else another
// one, which [layouts.use] tells of.
func (l *layouts) makeAgain(ctx context.Context) error {
	old, want := l.inUse.Load(), l.config.Want
	want.Shards = old.Shards
	layout, err := l.config.Registry.Ensure(ctx, want)
	if err == nil && layout.SameLife(old) {
		l.config.Logger.Error("redis has lost the layout, which is restored from the shards",
			"event", "layout_lost", "epoch", layout.Epoch)
		l.losses.add(store.Loss{ID: "layout:" + layout.Epoch, Kind: store.LostLayout})
	}
	return err
}
