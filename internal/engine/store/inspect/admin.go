// Package inspect is all that looks at a queue: stats, counters, lists, dead letters, the
// forecast, the audit, and what becomes of one message. With it goes what operators do by hand
// (redrive, purge, pause, limits): no poller and no producer runs it.
package inspect

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/conn"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// Admin is a queue as its operators see it: what it holds, what it has counted,
// and its dead letters.
type Admin struct{ queue *store.Queue }

// NewAdmin is the operators' door.
func NewAdmin(queue *store.Queue) *Admin { return &Admin{queue} }

// Instances returns when each instance was last heard, and Redis' time now, for people:
// one is in the list for some time after it died.
func (a *Admin) Instances(ctx context.Context) (beats []store.Heartbeat, now time.Time, err error) {
	err = a.queue.Repeat(ctx, func(*store.Layout) error {
		rdb := a.queue.Redis(ctx)
		if now, err = rdb.Time(ctx).Result(); err != nil {
			return err
		}
		entries, err := rdb.ZRangeWithScores(ctx, a.queue.Keys().Instances(), 0, -1).Result()
		beats = make([]store.Heartbeat, len(entries))
		for i, z := range entries {
			name, _ := z.Member.(string)
			beats[i] = store.Heartbeat{Instance: name, At: int64(z.Score)}
		}
		return err
	})
	return beats, now, err
}

// Losses are those that nobody has acknowledged, the first one first.
func (a *Admin) Losses(ctx context.Context) ([]store.Loss, error) {
	return store.Repeat(ctx, a.queue, func(*store.Layout) ([]store.Loss, error) { return a.queue.Layouts().Losses(ctx) })
}

// Acknowledge forgets the losses of these ids, and counts those that were there.
func (a *Admin) Acknowledge(ctx context.Context, ids []string) (n int, err error) {
	if n, err = a.queue.Layouts().Acknowledge(ctx, ids); err != nil {
		return 0, store.Unavailable(err)
	}
	return n, nil
}

// ask is [conn.AskShards] of a queue.
func ask[T any](ctx context.Context, queue *store.Queue, shards []keys.Shard, of func(redis.Pipeliner, keys.Shard) T) ([]T, error) {
	return conn.AskShards(ctx, queue.Redis(ctx), shards, of)
}

// askShard runs a script that reads a shard of the layout, whose epoch goes first. Its error may be
// a refusal, which [store.Queue.Repeat] heeds.
func askShard(
	ctx context.Context, queue *store.Queue, layout *store.Layout, shard int, s *scripts.Script, keys []string, args ...any,
) (*scripts.Reply, error) {
	cmd, err := queue.Run(ctx, s, keys, append([]any{layout.Epoch}, args...)...)
	if err != nil {
		return nil, err
	}
	r := scripts.NewReply(cmd)
	return r, errors.Join(layout.Accepted(r, shard), r.Err)
}
