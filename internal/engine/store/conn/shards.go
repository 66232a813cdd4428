package conn

import (
	"context"
	"errors"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
)

// askedAtOnce is how many shards one pipeline asks.
const askedAtOnce = 512

// AskShards queues the commands of the function of for each shard, in one pipeline per node, and
// returns them by shard. The error is the last one of a command; the other commands are answered
// all the same. A missing key is not an error.
func AskShards[T any](ctx context.Context, rdb redis.UniversalClient, shards []keys.Shard, of func(redis.Pipeliner, keys.Shard) T) (answers []T, err error) {
	answers = make([]T, 0, len(shards))
	for part := range slices.Chunk(shards, askedAtOnce) {
		cmds, _ := rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, k := range part {
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
