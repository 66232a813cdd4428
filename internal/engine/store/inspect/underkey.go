package inspect

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
)

// mostShardsByID bounds the pages of a look, which travel together.
const mostShardsByID = 256

// PagesByID is how many pages [FindUnderKeys] reads: two a shard.
func PagesByID(l *store.Layout) int { return 2 * min(l.InUse(), mostShardsByID) }

// FindUnderKeys fills in the Keys under which messages of these ids are there, one an id. An
// id does not tell its shard, which its Key decides, and no index has it: so it reads, once,
// a page of what waits and one of the dead letters of each shard, of 256 shards at the most:
// those that are due next. What is in flight it does not see. It returns how many messages
// it has read, and whether those were all.
func FindUnderKeys(ctx context.Context, queue *store.Queue, byID map[string]string, page int) (looked int, whole bool, err error) {
	layout, err := queue.Layout(ctx)
	if err != nil {
		return 0, false, err
	}
	shards, asked := layout.Keys()[:layout.InUse()], PagesByID(layout)/2
	first := rand.IntN(len(shards)) //nolint:gosec // It spreads looks, no more.
	spread := slices.Concat(shards[first:], shards[:first])[:asked]
	type heads [2]*redis.StringSliceCmd
	pages, err := ask(ctx, queue, spread, func(pipe redis.Pipeliner, k keys.Shard) heads {
		return heads{pipe.ZRange(ctx, k.Due, 0, int64(page)-1), pipe.ZRange(ctx, k.Dead, 0, int64(page)-1)}
	})
	if err != nil {
		return 0, false, fmt.Errorf("look for ids under keys: %w", err)
	}
	whole = asked == len(shards)
	for _, both := range pages {
		for _, cmd := range both {
			looked, whole = looked+len(cmd.Val()), whole && len(cmd.Val()) < page
			for _, member := range cmd.Val() {
				id, key := message.SplitMember(member)
				if _, isAsked := byID[id]; isAsked && key != "" {
					byID[id] = key
				}
			}
		}
	}
	return looked, whole, nil
}
