package inspect

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/conn"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

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
