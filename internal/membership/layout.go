package membership

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
)

const (
	// reloadEvery is how often the layout is read again without a sign of a
	// change: an instance that polls no shard may miss all signs, and a lost
	// layout key gives none.
	reloadEvery = 10 * time.Second
	// unsettledFor is how long a sign of a change makes every turn read the
	// layout. If nothing comes of the sign, it is left to the keeper's rare look.
	unsettledFor = 15 * time.Second
)

// layouts follows the queue's layout. The member's turns call its methods, except
// sawEpoch, repair and what they use, which the poller's goroutines call.
type layouts struct {
	config *Config

	// notice makes the next turn come now.
	notice func()
	inUse  atomic.Pointer[store.Layout]
	// reported is the last epoch that a shard reported, lostAt when a shard had no meta.
	reported atomic.Pointer[toldEpoch]
	lostAt   atomic.Pointer[time.Time]
	// reloadAt and births are of the member's turns.
	reloadAt time.Time
	births   births
	losses   losses

	repairing  sync.Mutex
	repairedAt time.Time // under repairing
	failing    bool      // under repairing: it was said that it does not succeed
}

// toldEpoch is the epoch that a shard reported, and when.
type toldEpoch struct {
	epoch string
	at    time.Time
}

// use makes it the layout whose shards are assigned.
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
		l.lost(old.InUse(), store.Loss{ID: "queue:" + layout.Life(), Kind: store.LostQueue})
	case layout.Epoch != old.Epoch:
		l.config.Logger.Info("layout changed", fields...)
	case layout.Next != old.Next && layout.Next != 0:
		l.config.Logger.Info("layout change begun", append(fields, "next", layout.Next)...)
	case len(layout.Earlier) < len(old.Earlier):
		l.config.Logger.Info("earlier layouts have drained and are forgotten", append(fields, "dropped", old.InUse()-layout.InUse())...)
	}
}

// lost reports shards that were made again, empty.
func (l *layouts) lost(shards int, loss store.Loss) {
	l.config.Observer.ShardsLost(l.config.Queue, shards)
	l.losses.add(loss)
	if l.config.Reborn != nil {
		l.config.Reborn()
	}
}

// sawEpoch records the epoch in a claim's answer. It never blocks.
func (l *layouts) sawEpoch(epoch string) {
	l.reported.Store(&toldEpoch{epoch: epoch, at: time.Now()})
	if layout := l.inUse.Load(); layout != nil && layout.Epoch != epoch {
		l.notice()
	}
}

// disagreesFor returns how long a shard has reported another epoch than that of
// the layout in use; 0 if none does, or if nothing has come of it.
func (l *layouts) disagreesFor(now time.Time) time.Duration {
	told := l.reported.Load()
	if told == nil || told.epoch == l.inUse.Load().Epoch {
		return 0
	}
	if since := max(1, now.Sub(told.at)); since < unsettledFor {
		return since
	}
	return 0
}

// unsettled reports whether there is a sign of a change, or of a loss, that is
// not over.
func (l *layouts) unsettled(now time.Time) bool {
	lost := l.lostAt.Load()
	return l.inUse.Load().Next != 0 || l.disagreesFor(now) > 0 || lost != nil && now.Sub(*lost) < unsettledFor
}

// due reports whether to read the layout again: after a hint, while it changes,
// and now and then.
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

// repairPause is the time between two repairs of a layout.
const repairPause = time.Second

// repair restores what Redis has lost of the layout, shards or all of it, and
// leaves the rest alone. One call at a time is enough for all shards.
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
		l.notice() // It finds out what was lost, see births.
	case !l.failing && (gone || len(lost) > 0) && ctx.Err() == nil:
		l.failing = true
		l.config.Logger.Error("redis has lost the layout or shards, which cannot be made again yet",
			"event", "layout_lost", "shards", len(lost), "which", joined(lost), "err", err)
	}
}

// makeAgain makes a lost layout again. If shards still know it, it is the former
// one, under another epoch if any shard was lost; otherwise it is a new one,
// which [layouts.use] reports.
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

// births notices that Redis has lost shards, whoever has made them again,
// because their time of birth is later. A loss changes the layout's epoch, so
// the births are read only then. The member's turns call its methods.
type births struct {
	config *Config
	lost   func(shards int, loss store.Loss)

	layout *store.Layout // of known
	known  []time.Time
	epoch  string // that all were read with
}

// look reports the shards that were lost since the last look.
func (b *births) look(ctx context.Context, layout *store.Layout) {
	if layout.Epoch == b.epoch {
		return
	}
	if b.layout != nil && !b.layout.SameLife(layout) {
		b.known = nil // All was lost, which is reported already.
	}
	born, err := b.config.Registry.Born(ctx, layout)
	if b.layout = layout; err == nil {
		b.epoch = layout.Epoch
	}
	if lost := b.learn(born); len(lost) > 0 {
		b.tell(lost)
	}
}

// learn returns which shards were born again. Those that a change has added were
// not, and of one that does not answer, or is missing yet, nothing is learnt.
func (b *births) learn(born []time.Time) (lost []int) {
	b.known = b.known[:min(len(b.known), len(born))]
	for shard, at := range born {
		switch {
		case shard == len(b.known):
			b.known = append(b.known, at)
		case !at.IsZero() && !at.Equal(b.known[shard]):
			b.known[shard] = at
			lost = append(lost, shard)
		}
	}
	return lost
}

func (b *births) tell(lost []int) {
	b.config.Logger.Error("redis has lost shards, and the messages in them; they are made again, empty",
		"event", "layout_lost", "shards", len(lost), "which", joined(lost))
	b.lost(len(lost), store.Loss{ID: "shards:" + b.layout.Epoch, Kind: store.LostShards, Shards: lost})
}

// losses are losses that this instance has noticed and not yet recorded in Redis, so that
// nobody later takes the queue for one that was always empty. If this instance dies first,
// another one has noticed the same; if all do, only the log has it.
type losses struct {
	mu      sync.Mutex
	pending []store.Loss
}

func (l *losses) add(loss store.Loss) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if loss.At = time.Now(); len(l.pending) < layout.MostLosses { // Redis keeps no more either.
		l.pending = append(l.pending, loss)
	}
}

// record writes the pending losses to Redis, as far as possible; the rest the next time.
func (l *losses) record(ctx context.Context, config *Config) {
	l.mu.Lock()
	pending := slices.Clone(l.pending)
	l.mu.Unlock()
	done := 0
	for _, loss := range pending {
		loss.Instance = message.InstanceName(config.Instance)
		if config.Registry.RecordLoss(ctx, loss) != nil {
			break
		}
		done++
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = slices.Delete(l.pending, 0, done)
}
