package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/store/scripts"
)

// fence is what a shard's meta says of the layout.
type fence struct {
	epoch, content string
	// drained is "<epoch> <ms>": since when no message is here that has another home.
	drained string
	// back counts the dead letters that came back, see drained.lua.
	back string
}

// fences reads those of the shards from, to-1.
func (q *Queue) fences(ctx context.Context, k *keys, from, to int) ([]fence, error) {
	const page = 512
	list := make([]fence, 0, to-from)
	for ; from < to; from += page {
		cmds, err := q.conn.Client(ctx).Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, shard := range k.shards[from:min(to, from+page)] {
				pipe.HMGet(ctx, shard.meta, "epoch", "layout", "drained", "redriven", "replaced")
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read shards of %s: %w", q.name, err)
		}
		for _, cmd := range cmds {
			values := cmd.(*redis.SliceCmd).Val()
			text := func(i int) string { s, _ := values[i].(string); return s }
			list = append(list, fence{
				epoch: text(0), content: text(1), drained: text(2), back: text(3) + " " + text(4),
			})
		}
	}
	return list, nil
}

// Missing are the shards in use of the layout that have no meta in Redis.
func (q *Queue) Missing(ctx context.Context, layout *Layout) ([]int, error) {
	fences, err := q.fences(ctx, layout.keys, 0, layout.InUse())
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
func (q *Queue) Repair(ctx context.Context) (lost []int, err error) {
	layout, err := q.LoadLayout(ctx)
	for range 10 {
		if err != nil {
			return nil, err
		}
		missing, err := q.Missing(ctx, layout)
		if err != nil || len(missing) == 0 {
			return nil, err
		}
		// A shard that was dropped meanwhile is missing, too, but not lost.
		now, err := q.LoadLayout(ctx)
		if err != nil {
			return nil, err
		}
		if now.Epoch != layout.Epoch || now.InUse() != layout.InUse() {
			layout = now
			continue
		}
		for _, shard := range missing {
			if err := q.raise(ctx, layout, shard, shard+1); err != nil {
				return missing, err
			}
		}
		return missing, nil
	}
	return nil, errContended
}

// refusal is the answer of a shard that is bound to another layout.
type refusal struct {
	layout *Layout // the caller's
	shard  int
	epoch  string // the shard's, empty where it has none
}

func (r *refusal) Error() string { return "layout has changed" }

func isRefusal(err error) bool {
	var r *refusal
	return errors.As(err, &r)
}

// refused reads a script's refusal.
func refused(r *scripts.Reply, layout *Layout, shard int) error {
	epoch := r.Text(2)
	if r.Err != nil {
		return r.Err
	}
	return &refusal{layout: layout, shard: shard, epoch: epoch}
}

// patience is how long a caller that a fence refuses waits for its layout to be
// published, before it finishes the change itself.
const patience = 250 * time.Millisecond

// reconcile does what a refusal asks for: it loads the layout; raises the fence
// where a failover has lost it; finishes the change where that has not been
// done for long. Its errors show again when the caller repeats the run.
func (q *Queue) reconcile(ctx context.Context, err error, since time.Time) {
	var r *refusal
	if !errors.As(err, &r) {
		return
	}
	q.reload(r.layout)
	layout, err := q.LoadLayout(ctx)
	switch {
	case err != nil || r.epoch == layout.Epoch:
	case ahead(r.epoch, layout.Epoch):
		if time.Since(since) >= patience {
			_, _ = q.finishChange(ctx)
		}
	case r.shard < layout.Polled():
		_ = q.raise(ctx, layout, r.shard, r.shard+1)
	}
}
