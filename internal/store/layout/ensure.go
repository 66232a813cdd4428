package layout

import (
	"context"
	"errors"
	"fmt"

	"github.com/delaybridge/delaybridge/internal/store/scripts"
)

// Ensure makes the queue's layout where there is none, gives every shard
// its meta, and returns the layout in force: its shards may differ from those
// asked for. Sink and MaxMessage become the ones asked for. A layout that was
// lost alone is taken from the shards, which know it too.
func (g *Registry) Ensure(ctx context.Context, want Layout) (*Layout, error) {
	if want.Shards < 1 || want.Shards > MaxShards {
		return nil, fmt.Errorf("%w: %d", ErrShards, want.Shards)
	}
	if err := g.restore(ctx, &want); err != nil {
		return nil, err
	}
	layout, err := g.load(ctx, true, want)
	if err != nil {
		return nil, err
	}
	return layout, g.raise(ctx, layout, 0, layout.Polled())
}

// restore takes the layout wanted from the shards, where only its key was lost.
func (g *Registry) restore(ctx context.Context, want *Layout) error {
	if _, err := g.Load(ctx); !errors.Is(err, ErrNoLayout) {
		return err
	}
	want.Epoch, want.Earlier = newEpoch(1, ""), nil
	for seen := 0; seen < want.Shards; {
		fences, err := g.fences(ctx, g.queue.Shards(want.Shards), seen, want.Shards)
		if err != nil {
			return err
		}
		seen = want.Shards
		for _, f := range fences {
			p, ok := parsePlan(f.epoch, f.content)
			_, life := parseEpoch(p.epoch)
			if _, mine := parseEpoch(want.Epoch); ok && (life != mine || ahead(p.epoch, want.Epoch)) {
				want.Epoch, want.Shards, want.Earlier = p.epoch, p.shards, p.earlier
			}
		}
	}
	// Nobody may find a layout that a shard does not know of yet.
	l := &Layout{Shards: want.Shards, Epoch: want.Epoch, Earlier: want.Earlier}
	l.keys = g.queue.Shards(l.Polled())
	return g.raise(ctx, l, 0, l.Polled())
}

// raise gives shards from, to-1 the layout's fence, where they have a lower one or none.
func (g *Registry) raise(ctx context.Context, l *Layout, from, to int) error {
	for shard := from; shard < to; shard++ {
		_, err := g.conn.Run(ctx, scripts.Fence, []string{l.keys[shard].Meta}, l.Epoch, l.plan().content())
		if err != nil {
			return fmt.Errorf("fence shard %d of %s: %w", shard, g.queue.Name, err)
		}
	}
	return nil
}

// Missing are the shards in use of the layout that have no meta in Redis.
func (g *Registry) Missing(ctx context.Context, layout *Layout) ([]int, error) {
	fences, err := g.fences(ctx, layout.keys, 0, layout.InUse())
	if err != nil {
		return nil, err
	}
	var missing []int
	for shard, f := range fences {
		if f.epoch == "" {
			missing = append(missing, shard)
		}
	}
	return missing, nil
}

// Repair gives the shards in use that have no meta a new one, and returns them:
// Redis has lost them, messages and all. With an error some are not made again.
func (g *Registry) Repair(ctx context.Context) (lost []int, err error) {
	layout, err := g.Load(ctx)
	for range 10 {
		if err != nil {
			return nil, err
		}
		missing, err := g.Missing(ctx, layout)
		if err != nil || len(missing) == 0 {
			return nil, err
		}
		// A shard that was dropped meanwhile is missing, too, but not lost.
		now, err := g.Load(ctx)
		if err != nil {
			return nil, err
		}
		if now.Epoch != layout.Epoch || now.InUse() != layout.InUse() {
			layout = now
			continue
		}
		for _, shard := range missing {
			if err := g.raise(ctx, layout, shard, shard+1); err != nil {
				return missing, err
			}
		}
		return missing, nil
	}
	return nil, errContended
}
