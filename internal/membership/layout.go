package membership

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store"
)

const (
	// reloadEvery is how often the layout is read again where nothing tells of a
	// change: an instance that polls no shard may miss all that does, and that the
	// layout's key itself was lost nothing tells.
	reloadEvery = 10 * time.Second
	// unsettledFor is how long a sign of a change makes the layout be read at each
	// turn: a sign that nothing comes of is left to the keeper's rare look.
	unsettledFor = 15 * time.Second
)

// layouts follows the queue's layout. Its methods are called from the member's
// turns, but sawEpoch, repair and what they use, which the poller's goroutines call.
type layouts struct {
	config *Config

	// notice makes the next turn come now.
	notice func()
	inUse  atomic.Pointer[store.Layout]
	// told is the last epoch that a shard told, lostAt when a shard had no meta.
	told   atomic.Pointer[toldEpoch]
	lostAt atomic.Pointer[time.Time]
	// reloadAt and births are of the member's turns.
	reloadAt time.Time
	births   births
	losses   losses

	repairing  sync.Mutex
	repairedAt time.Time // under repairing
	failing    bool      // under repairing: it was said that it does not succeed
}

// toldEpoch is what a shard told, and when.
type toldEpoch struct {
	epoch string
	at    time.Time
}

// use makes the layout the one whose shards are assigned.
func (l *layouts) use(layout *store.Layout) {
	old := l.inUse.Swap(layout)
	l.config.Observer.Layout(l.config.Queue, layout.Epoch, layout.Shards)
	if old == nil {
		return
	}
	fields := []any{
		"event", "layout", "epoch", layout.Epoch, "shards", layout.Shards, "earlier", joined(layout.Earlier),
	}
	switch {
	case !layout.SameLife(old):
		l.config.Logger.Error("the queue was lost and is made again: redis has lost its messages",
			"event", "layout_lost", "epoch", layout.Epoch, "shards", layout.Shards)
		l.config.Observer.ShardsLost(l.config.Queue, old.InUse())
		l.losses.add(store.Loss{ID: "queue:" + layout.Life(), Kind: store.LostQueue})
		if l.config.Reborn != nil {
			l.config.Reborn()
		}
	case layout.Epoch != old.Epoch:
		l.config.Logger.Info("layout changed", fields...)
	case layout.Next != old.Next && layout.Next != 0:
		l.config.Logger.Info("layout change begun", append(fields, "next", layout.Next)...)
	case len(layout.Earlier) < len(old.Earlier):
		l.config.Logger.Info("earlier layouts have drained and are forgotten", append(fields, "dropped", old.InUse()-layout.InUse())...)
	}
}

// sawEpoch is told what a shard's claim answered with. It never blocks.
func (l *layouts) sawEpoch(epoch string) {
	l.told.Store(&toldEpoch{epoch: epoch, at: time.Now()})
	if layout := l.inUse.Load(); layout != nil && layout.Epoch != epoch {
		l.notice()
	}
}

// disagreesFor is for how long a shard has told another epoch than that of the
// layout in use; 0 where none does, or where nothing has come of it.
func (l *layouts) disagreesFor(now time.Time) time.Duration {
	told := l.told.Load()
	if told == nil || told.epoch == l.inUse.Load().Epoch {
		return 0
	}
	if since := max(1, now.Sub(told.at)); since < unsettledFor {
		return since
	}
	return 0
}

// unsettled reports whether something tells of a change, or of a loss, that is
// not over.
func (l *layouts) unsettled(now time.Time) bool {
	lost := l.lostAt.Load()
	return l.inUse.Load().Next != 0 || l.disagreesFor(now) > 0 || lost != nil && now.Sub(*lost) < unsettledFor
}

// due reports whether the layout is to be read again: after a hint, while it
// changes, and now and then.
func (l *layouts) due(now time.Time, hinted bool) bool {
	return hinted || l.unsettled(now) || !now.Before(l.reloadAt)
}

// loaded notes that the layout was read now.
func (l *layouts) loaded(now time.Time) { l.reloadAt = now.Add(reloadEvery) }

// reload reads the layout again.
func (l *layouts) reload(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, store.DefaultTimeout)
	defer cancel()
	layout, err := l.config.Registry.Load(ctx)
	if errors.Is(err, store.ErrNoLayout) {
		l.repair(ctx)
	}
	if err != nil {
		return false
	}
	l.use(layout)
	l.births.look(ctx, layout)
	l.losses.record(ctx, l.config)
	l.loaded(time.Now())
	return true
}
