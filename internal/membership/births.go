package membership

import (
	"context"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// births notices that Redis has lost shards, whoever has made them again: they
// were born since. That changes the layout's epoch, so only then they are read.
// Its methods are called from the member's turns.
type births struct {
	config *Config
	lost   func(store.Loss)

	layout *store.Layout // of known
	known  []time.Time
	epoch  string // that all were read with
}

// look tells of the shards that were lost since the last look.
func (b *births) look(ctx context.Context, layout *store.Layout) {
	if layout.Epoch == b.epoch {
		return
	}
	if b.layout != nil && !b.layout.SameLife(layout) {
		b.known = nil // All was lost, which was told.
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
	b.config.Observer.ShardsLost(b.config.Queue, len(lost))
	b.lost(store.Loss{ID: "shards:" + b.layout.Epoch, Kind: store.LostShards, Shards: lost})
	b.config.Logger.Error("redis has lost shards, and the messages in them; they are made again, empty",
		"event", "layout_lost", "shards", len(lost), "which", joined(lost))
	if b.config.Reborn != nil {
		b.config.Reborn()
	}
}
