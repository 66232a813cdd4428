package layout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// maxEarlier is how many earlier layouts may live: each costs every call a visit more.
const maxEarlier = 8

var (
	// ErrEarlierLayouts is returned while too many earlier layouts have messages.
	ErrEarlierLayouts = fmt.Errorf("more than %d earlier layouts have messages", maxEarlier)
	errContended      = errors.New("layout is changed by others all the time")
)

// SetShards changes how many shards the queue has, while it is in use. Messages
// stay where they are until they are due; see the package comment. A change that
// somebody else has begun is finished first. Where SetShards fails halfway, the
// change may be finished by others.
func (g *Registry) SetShards(ctx context.Context, shards int) (*Layout, error) {
	if shards < 1 || shards > MaxShards {
		return nil, fmt.Errorf("%w: %d", ErrShards, shards)
	}
	for range 10 {
		layout, err := g.finish(ctx)
		if err != nil || layout.Shards == shards {
			return layout, err
		}
		if len(layout.dropping) > 0 {
			if _, err := g.drop(ctx, layout); err != nil {
				return nil, err
			}
			continue
		}
		next := succeed(NextEpoch(layout.Epoch), shards, layout.plan())
		if len(next.earlier) > maxEarlier {
			return nil, fmt.Errorf("%w: %v", ErrEarlierLayouts, layout.Earlier)
		}
		if _, err := newWriter(g).intend(ctx, layout, next); err != nil {
			return nil, err
		}
		// The next round finishes it, or somebody else's that came first.
	}
	return nil, errContended
}

// finish finishes a change that has begun, if there is one: one that the
// layout's key tells of, or one that was forgotten there by a failover, and
// that fences still tell of. It may be called by anybody at any time.
func (g *Registry) finish(ctx context.Context) (*Layout, error) {
	w := newWriter(g)
	for range 10 {
		layout, err := g.Load(ctx)
		if err != nil {
			return nil, err
		}
		next, err := g.findNext(ctx, layout)
		if next.epoch != "" && layout.next.epoch == "" && next.content() == layout.plan().content() {
			// Shards were lost, see remake: those that are not reached have no part in it.
			layout, err = w.renew(ctx, layout, next.epoch)
			if err != nil || layout.Epoch == next.epoch {
				return layout, err
			}
			continue
		}
		if err != nil || next.epoch == "" {
			return layout, err
		}
		if next.epoch != layout.next.epoch {
			layout, err = w.intend(ctx, layout, next)
			if err != nil {
				return nil, err
			}
			if layout.next.epoch != next.epoch {
				continue
			}
		}
		done, err := w.fenceAll(ctx, layout)
		if err != nil {
			return nil, err
		}
		if !done {
			continue // A shard knows of a change that this one does not.
		}
		layout, err = w.publish(ctx, layout)
		if err != nil || layout.Epoch == next.epoch {
			return layout, err
		}
	}
	return nil, errContended
}

// findNext is the change to be finished: the one that has begun, or, where
// shards know of others, one that follows upon all of them. With an error some
// shards were not asked.
func (g *Registry) findNext(ctx context.Context, layout *Layout) (plan, error) {
	fences, err := g.fences(ctx, layout.keys, 0, layout.Polled())
	before, next := []plan{layout.plan()}, layout.next
	for _, f := range fences {
		p, ok := parsePlan(f.epoch, f.content)
		if !ok || !ahead(p.epoch, layout.Epoch) || next.epoch != "" && !ahead(p.epoch, next.epoch) {
			continue
		}
		before = append(before, p)
	}
	if len(before) == 1 {
		return next, err
	}
	last := before[len(before)-1]
	alone := next.epoch == ""
	top, life := parseEpoch(layout.Epoch)
	published := top
	for _, p := range before[1:] {
		counter, _ := parseEpoch(p.epoch)
		alone = alone && p.epoch == last.epoch && counter > published
		top = max(top, counter)
	}
	switch {
	case alone:
		return last, err
	case next.epoch != "":
		last = next
		before = append(before, next)
	}
	return succeed(newEpoch(top+1, life), last.shards, before...), err
}

// forget ends the earlier layouts. The counters of the shards that go with them
// are kept first, in the same step: whoever repeats it finds that it was done.
func (g *Registry) forget(ctx context.Context, layout *Layout) error {
	fields := []any{"earlier", ""}
	if polled := layout.Polled(); polled > layout.Shards {
		total, dropping := maps.Clone(layout.Retired), []int(nil) // Others read the layout's.
		for shard := layout.Shards; shard < polled; shard++ {
			meta, err := g.conn.Client(ctx).HGetAll(ctx, layout.keys[shard].Meta).Result()
			if err != nil {
				return fmt.Errorf("read counters of shard %d of %s: %w", shard, g.queue.Name, err)
			}
			for name, value := range meta {
				if n, err := strconv.ParseInt(value, 10, 64); err == nil && name != BornField {
					total[name] += n
				}
			}
			dropping = append(dropping, shard)
		}
		var retired []string
		for name, n := range total {
			retired = append(retired, fmt.Sprintf("%s=%d", name, n))
		}
		fields = append(fields, "retired", strings.Join(retired, " "), "dropping", joinInts(dropping))
	}
	layout, err := newWriter(g).set(ctx, layout, fields...)
	if err != nil || len(layout.dropping) == 0 {
		return err
	}
	_, err = g.drop(ctx, layout)
	return err
}

// drop deletes the shards that no layout has any more.
func (g *Registry) drop(ctx context.Context, layout *Layout) (*Layout, error) {
	for _, shard := range layout.dropping {
		if shard < layout.Polled() {
			continue
		}
		k := g.queue.Shard(shard)
		ended, ends := k.History()
		_, err := g.conn.Run(ctx, scripts.Drop, []string{
			k.Meta, k.Msg, k.Dead, k.Claims, k.Settled, k.Due, k.Deadlines, k.Attempts, k.Gone, k.GoneTTL, k.DeadMsg, k.Holder,
			k.Routes, k.Tags, ended, ends,
		})
		if err != nil {
			return nil, fmt.Errorf("drop shard %d of %s: %w", shard, g.queue.Name, err)
		}
	}
	return newWriter(g).set(ctx, layout, "dropping", "")
}
