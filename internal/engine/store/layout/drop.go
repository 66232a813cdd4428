package layout

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

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
