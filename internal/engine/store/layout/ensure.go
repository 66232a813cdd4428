package layout

import (
	"context"
	"errors"
	"fmt"

	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// Ensure makes the queue's layout where there is none, gives every shard
// its meta, and returns the layout in force: its shards may differ from those
// asked for. Sink and MaxMessage become the ones asked for. A layout that was
// lost alone is taken from the shards, which know it too.
func (g *Registry) Ensure(ctx context.Context, want Layout) (*Layout, error) {
	return g.ensure(ctx, makeOrUpdate, want)
}

// Create is [Registry.Ensure], but that it leaves a layout alone which is there: for
// callers who have no configuration.
func (g *Registry) Create(ctx context.Context, want Layout) (*Layout, error) {
	return g.ensure(ctx, makeOrKeep, want)
}

func (g *Registry) ensure(ctx context.Context, m making, want Layout) (*Layout, error) {
	if want.Shards < 1 || want.Shards > MaxShards {
		return nil, fmt.Errorf("%w: %d", ErrShards, want.Shards)
	}
	if err := g.restore(ctx, &want); err != nil {
		return nil, err
	}
	layout, err := g.load(ctx, m, want)
	if want.Epoch == "" && errors.Is(err, ErrNoLayout) { // It was lost meanwhile.
		return g.ensure(ctx, m, want)
	}
	if err != nil {
		return nil, err
	}
	if err := g.raise(ctx, layout, 0, layout.Polled(), false); err != nil {
		return layout, err
	}
	_, err = g.Repair(ctx)
	return g.InUse(), err
}

// restore takes the layout wanted from the shards, where only its key was lost.
func (g *Registry) restore(ctx context.Context, want *Layout) error {
	if _, err := g.Load(ctx); !errors.Is(err, ErrNoLayout) {
		return err
	}
	want.Epoch, want.Earlier = newEpoch(1, ""), nil
	known, missing := false, false
	for seen := 0; seen < want.Shards; {
		fences, err := g.fences(ctx, g.queue.Shards(want.Shards), seen, want.Shards)
		if err != nil {
			return err
		}
		seen = want.Shards
		for _, f := range fences {
			p, ok := parsePlan(f.epoch, f.content)
			known, missing = known || ok, missing || f.epoch == ""
			_, life := parseEpoch(p.epoch)
			if _, mine := parseEpoch(want.Epoch); ok && (life != mine || ahead(p.epoch, want.Epoch)) {
				want.Epoch, want.Shards, want.Earlier = p.epoch, p.shards, p.earlier
			}
		}
	}
	if known && missing { // These were lost, too, see remake.
		want.Epoch = NextEpoch(want.Epoch)
	}
	// Nobody may find a layout that a shard does not know of yet.
	l := &Layout{Shards: want.Shards, Epoch: want.Epoch, Earlier: want.Earlier}
	l.keys = g.queue.Shards(l.Polled())
	return g.raise(ctx, l, 0, l.Polled(), true)
}

// raise gives shards from, to-1 the layout's fence, where they have a lower one,
// and, with missing, also where they have none.
func (g *Registry) raise(ctx context.Context, l *Layout, from, to int, missing bool) error {
	for shard := from; shard < to; shard++ {
		if _, err := g.fence(ctx, l.keys[shard], l.plan(), missing); err != nil {
			return fmt.Errorf("fence shard %d of %s: %w", shard, g.queue.Name, err)
		}
	}
	return nil
}

// fence binds a shard to a plan, and returns the epoch that binds it then. One
// without meta is made with missing, else it stays so.
func (g *Registry) fence(ctx context.Context, k keys.Shard, p plan, missing bool) (epoch string, err error) {
	cmd, err := g.conn.Run(ctx, scripts.Fence, []string{k.Meta}, p.epoch, p.content(), scripts.Flag(missing))
	if err != nil {
		return "", err
	}
	r := scripts.NewReply(cmd)
	return r.Text(1), r.Err
}
