package store

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/store/keys"
	"github.com/delaybridge/delaybridge/internal/store/scripts"
)

// messageOverhead is about what a message takes in Redis beside what is stored of it: its
// id in two keys, and their tables.
const messageOverhead = 270

// Limit measures the queue, as an estimate from a sample of its messages, and has producers
// refused beyond a budget of so many bytes: each shard may take its even part of the room
// that is left. 0 is no limit. It is called about once a second: until the next call, what
// is in the shards' meta is in force. It returns how many bytes the queue takes, dead letters
// among them.
func (q *Admin) Limit(ctx context.Context, budget int64) (used int64, err error) {
	err = q.repeat(ctx, func(l *Layout) error {
		shards := l.Keys()[:l.InUse()]
		live, dead, err := q.lengths(ctx, shards)
		if err != nil {
			return err
		}
		size, err := q.sampleSizes(ctx, shards, live)
		if err != nil {
			return err
		}
		each := int64(size.Mean) + messageOverhead
		used = dead * each
		for _, n := range live {
			used += n * each
		}
		room := max(0, budget-used) / each / int64(len(shards))
		for i, k := range shards {
			text := ""
			if budget > 0 {
				text = strconv.FormatInt(live[i]+room, 10) + " messages"
			}
			if _, err := q.conn.Run(ctx, scripts.Budget, []string{k.Meta}, text); err != nil {
				return fmt.Errorf("limit shard %d: %w", i, err)
			}
		}
		return nil
	})
	return used, err
}

// lengths are how many messages live in each shard, and how many are dead in all.
func (q *Admin) lengths(ctx context.Context, shards []keys.Shard) (live []int64, dead int64, err error) {
	for from := 0; from < len(shards); from += countersPage {
		page := shards[from:min(len(shards), from+countersPage)]
		cmds, err := q.conn.Client(ctx).Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, k := range page {
				pipe.HLen(ctx, k.Msg)
				pipe.ZCard(ctx, k.Dead)
			}
			return nil
		})
		if err != nil {
			return nil, 0, fmt.Errorf("count messages: %w", err)
		}
		for i := range page {
			live = append(live, cmds[2*i].(*redis.IntCmd).Val()) //nolint:forcetypeassert // It is what HLen has queued.
			dead += cmds[2*i+1].(*redis.IntCmd).Val()            //nolint:forcetypeassert // as above, ZCard
		}
	}
	return live, dead, nil
}
