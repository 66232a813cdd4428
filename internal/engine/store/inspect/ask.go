package inspect

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
)

// askedAtOnce is how many shards one pipeline asks.
const askedAtOnce = 512

// ask asks each shard the same, a pipeline a node, and returns what of has queued, by shard.
// The error is the last one of a command: the others are answered all the same. That
// something is not there is none.
func ask[T any](ctx context.Context, queue *store.Queue, shards []keys.Shard, of func(redis.Pipeliner, keys.Shard) T) (answers []T, err error) {
	answers = make([]T, 0, len(shards))
	for from := 0; from < len(shards); from += askedAtOnce {
		cmds, _ := queue.Redis(ctx).Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, k := range shards[from:min(len(shards), from+askedAtOnce)] {
				answers = append(answers, of(pipe, k))
			}
			return nil
		}) // Each command tells its error.
		for _, cmd := range cmds {
			if failed := cmd.Err(); failed != nil && !errors.Is(failed, redis.Nil) {
				err = failed
			}
		}
	}
	return answers, err
}
