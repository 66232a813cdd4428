package layout

import (
	"context"
	"fmt"
	"time"
)

const (
	// fencesPerStep is how many shards one step looks at while no change is open,
	// fencesPerGlance how many a glance does.
	fencesPerStep   = 256
	fencesPerGlance = 16
	// pagesPerStep is how many pages of ids one step reads.
	pagesPerStep = 200
)

// Keeper keeps up the layout of a queue: one instance calls Step about once a
// second while the layout changes or something was lost, and Glance now and then
// where nothing tells of that. Two of them do no harm. It is not safe for
// concurrent use.
type Keeper struct {
	registry *Registry
	after    time.Duration // see NewKeeper
	at       int           // the shard whose fence is looked at next
	epoch    string
	looks    map[int]*look
}

// NewKeeper returns a keeper of the registry's layout; it does no I/O. Earlier
// layouts are kept for so long after they have drained: as long as a repeated run
// of a call may ask them for what it did.
func NewKeeper(registry *Registry, after time.Duration) *Keeper {
	return &Keeper{registry: registry, after: after}
}

// Step does a bounded part of what there is to do: it finishes a change that has
// begun, raises fences that a failover has lost, looks for shards that have
// drained, forgets earlier layouts that all have, and drops shards that no
// layout has any more. What it did not do, a later step does.
func (k *Keeper) Step(ctx context.Context) error { return k.step(ctx, fencesPerStep) }

// Glance is Step, but for how many shards it looks at where no change is open:
// the claims of their holders and the calls of producers tell what is wrong there.
func (k *Keeper) Glance(ctx context.Context) error { return k.step(ctx, fencesPerGlance) }

func (k *Keeper) step(ctx context.Context, shards int) error {
	g := k.registry
	layout, err := g.Load(ctx)
	if err != nil {
		return err
	}
	if layout.Epoch != k.epoch {
		k.epoch, k.looks, k.at = layout.Epoch, map[int]*look{}, 0
	}
	from, to := 0, layout.Polled()
	if len(layout.Earlier) == 0 && layout.Next == 0 {
		from = k.at % to
		to = min(to, from+shards)
		k.at = to
	}
	fences, err := g.fences(ctx, layout.keys, from, to)
	if err != nil {
		return err
	}
	open, lost := layout.Next != 0, false
	for i, f := range fences {
		switch {
		case ahead(f.epoch, layout.Epoch):
			open = true
		case from+i >= layout.InUse(): // Finishing the change makes it.
		case f.epoch == "":
			lost = true
		case f.epoch != layout.Epoch || f.content == "":
			if err := g.raise(ctx, layout, from+i, from+i+1, false); err != nil {
				return err
			}
		}
	}
	switch {
	case lost:
		_, err = g.Repair(ctx)
	case open:
		_, err = g.finish(ctx)
	case len(layout.dropping) > 0:
		_, err = g.drop(ctx, layout)
	case len(layout.Earlier) > 0:
		err = k.drain(ctx, layout, fences)
	}
	return err
}

// drain looks for what is left in other places than the layout in force would
// put it, and forgets the earlier layouts when nothing is.
func (k *Keeper) drain(ctx context.Context, layout *Layout, fences []fence) error {
	g := k.registry
	youngest, pages, all := int64(0), pagesPerStep, true
	for shard, f := range fences {
		if ms, ok := DrainedAt(f.drained, layout.Epoch); ok && f.epoch == layout.Epoch {
			youngest = max(youngest, ms)
			continue
		}
		all = false
		if k.looks[shard] == nil {
			k.looks[shard] = &look{shard: shard}
		}
		if pages > 0 {
			if err := k.looks[shard].on(ctx, g, layout, &pages); err != nil {
				return fmt.Errorf("look through shard %d of %s: %w", shard, g.queue.Name, err)
			}
		}
	}
	if nowMs, _ := g.clock.NowMs(); all && nowMs-youngest > k.after.Milliseconds() {
		return g.forget(ctx, layout)
	}
	return nil
}
