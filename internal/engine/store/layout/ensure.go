package layout

import (
	"context"
	"errors"
	"fmt"

	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// Ensure makes the queue's layout if there is none, gives every shard its meta,
// and returns the layout in force, whose number of shards may differ from the
// wanted one. Sink and MaxMessage become the wanted ones. If only the layout
// was lost, it is restored from the shards, which know it too.
func (g *Registry) Ensure(ctx context.Context, want Layout) (*Layout, error) {
	return g.ensure(ctx, makeOrUpdate, want)
}

// Create is [Registry.Ensure] for callers without a configuration: it does not
// change an existing layout.
func (g *Registry) Create(ctx context.Context, want Layout) (*Layout, error) {
	return g.ensure(ctx, makeOrKeep, want)
}

func (g *Registry) ensure(ctx context.Context, m loadMode, want Layout) (*Layout, error) {
	if want.Shards < 1 || want.Shards > MaxShards {
		return nil, fmt.Errorf("%w: %d", ErrShards, want.Shards)
	}
	if err := g.restore(ctx, &want); err != nil {
		return nil, err
	}
	layout, err := g.load(ctx, m, want)
	if want.Epoch == "" && errors.Is(err, ErrNoLayout) { // The layout was lost meanwhile.
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

// restore takes the wanted layout from the shards, if only its key was lost.
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
	if known && missing { // Those shards were lost, too, see remake.
		want.Epoch = NextEpoch(want.Epoch)
	}
	// Nobody may find a layout that a shard does not know yet.
	l := &Layout{Shards: want.Shards, Epoch: want.Epoch, Earlier: want.Earlier}
	l.keys = g.queue.Shards(l.Polled())
	return g.raise(ctx, l, 0, l.Polled(), true)
}

// raise gives shards from to to-1 the layout's fence if theirs is lower, and,
// with missing, also if they have none.
func (g *Registry) raise(ctx context.Context, l *Layout, from, to int, missing bool) error {
	for shard := from; shard < to; shard++ {
		if _, err := g.fence(ctx, l.keys[shard], l.plan(), missing); err != nil {
			return fmt.Errorf("fence shard %d of %s: %w", shard, g.queue.Name, err)
		}
	}
	return nil
}

// fence binds a shard to a plan, and returns the epoch that binds it then. With
// missing, it makes a shard that has no meta.
func (g *Registry) fence(ctx context.Context, k keys.Shard, p plan, missing bool) (epoch string, err error) {
	cmd, err := g.conn.Run(ctx, scripts.Fence, []string{k.Meta}, p.epoch, p.content(), scripts.Flag(missing))
	if err != nil {
		return "", err
	}
	r := scripts.NewReply(cmd)
	return r.Text(1), r.Err
}

// missing returns the shards in use that have no meta in Redis. With an error
// some shards were not reached.
func (g *Registry) missing(ctx context.Context, layout *Layout) ([]int, error) {
	fences, err := g.fences(ctx, layout.keys, 0, layout.InUse())
	var missing []int
	for shard, f := range fences {
		if f.epoch == "" && !f.unread {
			missing = append(missing, shard)
		}
	}
	return missing, err
}

// Repair gives shards in use without meta a new one, and returns them: Redis
// has lost them with their messages. With an error some were not made again.
// Unreachable shards do not stop it.
func (g *Registry) Repair(ctx context.Context) (lost []int, err error) {
	layout, err := g.Load(ctx)
	for range 10 {
		if err != nil {
			return nil, err
		}
		missing, err := g.missing(ctx, layout)
		if len(missing) == 0 {
			return nil, err
		}
		// A shard that was dropped meanwhile is missing, but not lost.
		now, err := g.Load(ctx)
		if err != nil {
			return nil, err
		}
		if now.Epoch != layout.Epoch || now.InUse() != layout.InUse() {
			layout = now
			continue
		}
		return missing, g.remake(ctx, now, missing)
	}
	return nil, errContended
}

// remake gives shards that Redis has lost a new meta. A run sent before the loss
// must not take effect after it, since the tombstones that it relies on are gone.
// So the shards are made under a new epoch, and then the layout gets that epoch.
// Lost shards refuse callers of the previous epoch, who load the layout again;
// other shards still accept them, and the first caller with the new epoch raises
// their fence, so a node that is down stops nobody.
//
// If several callers do this, the first one makes a shard. If the shards end up
// with different epochs, or a caller dies before the layout has its epoch, whoever
// meets the difference puts the layout under a newer one, see finish. A change
// under way makes the shards itself, because its epoch is new, too.
func (g *Registry) remake(ctx context.Context, layout *Layout, shards []int) error {
	if layout.next.epoch == "" {
		next := layout.plan()
		next.epoch = NextEpoch(layout.Epoch)
		made, err := g.bind(ctx, layout, shards, next)
		if made == 0 {
			return err // Another caller has done it, or nobody can.
		}
		now, errRenew := newWriter(g).renew(ctx, layout, next.epoch)
		if err = errors.Join(err, errRenew); err != nil || now.Epoch == next.epoch {
			return err
		}
	}
	_, err := g.finish(ctx)
	return err
}

// bind makes the shards under the plan, and returns how many it made.
func (g *Registry) bind(ctx context.Context, layout *Layout, shards []int, p plan) (bound int, all error) {
	for _, shard := range shards {
		epoch, err := g.fence(ctx, layout.keys[shard], p, true)
		if err != nil {
			all = errors.Join(all, fmt.Errorf("make shard %d of %s: %w", shard, g.queue.Name, err))
		}
		if epoch == p.epoch {
			bound++
		}
	}
	return bound, all
}
