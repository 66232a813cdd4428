package layout

import (
	"context"
	"errors"
	"fmt"
)

// missing are the shards in use of the layout that have no meta in Redis. With an
// error some shards were not reached.
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

// Repair gives the shards in use that have no meta a new one, and returns them:
// Redis has lost them, messages and all. With an error some are not made again.
// Shards that are not reached do not hinder it.
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
		// A shard that was dropped meanwhile is missing, too, but not lost.
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

// remake gives shards that Redis has lost a new meta. What was sent before the
// loss must not take effect after it: what it has met or left there, as a
// tombstone, is gone. So the shards are made under an epoch that nobody has known
// before, and the layout is put under it then. Callers of the epoch before are
// refused where something was lost, and load the layout; elsewhere they go on, and
// whoever comes with the new epoch raises the fence, so that a node which is down
// hinders nobody.
//
// Of several callers the first makes a shard. Where their epochs differ between
// shards, or one dies before the layout has its epoch, whoever meets the
// difference puts the layout under a newer one, see finish. A change that is under
// way makes the shards itself: nobody has known its epoch before either.
func (g *Registry) remake(ctx context.Context, layout *Layout, shards []int) error {
	if layout.next.epoch == "" {
		next := layout.plan()
		next.epoch = NextEpoch(layout.Epoch)
		made, err := g.bind(ctx, layout, shards, next)
		if made == 0 {
			return err // Others have done it, or nobody can.
		}
		now, errRenew := newWriter(g).renew(ctx, layout, next.epoch)
		if err = errors.Join(err, errRenew); err != nil || now.Epoch == next.epoch {
			return err
		}
	}
	_, err := g.finish(ctx)
	return err
}

// bind makes the shards under the plan, and counts them.
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
