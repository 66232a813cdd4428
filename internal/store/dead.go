package store

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/sharding"
)

// deadPage is how many dead letters one read takes; they may be large.
const deadPage = 16

// DeadLetters calls yield for the dead letters of all shards, oldest first
// within a shard, until it returns false. Letters that come or go meanwhile may
// be missed or seen.
func (q *Queue) DeadLetters(ctx context.Context, yield func(message.DeadLetter) bool) error {
	layout, err := q.AwaitLayout(ctx)
	if err != nil {
		return err
	}
	for _, k := range layout.keys.shards {
		for start := int64(0); ; start += deadPage {
			var letters []message.DeadLetter
			err := q.repeat(ctx, func(*Layout) (err error) {
				letters, err = q.deadPage(ctx, k, start)
				return err
			})
			if err != nil {
				return err
			}
			for _, letter := range letters {
				if !yield(letter) {
					return nil
				}
			}
			if len(letters) < deadPage {
				break
			}
		}
	}
	return nil
}

func (q *Queue) deadPage(ctx context.Context, k shardKeys, start int64) ([]message.DeadLetter, error) {
	ids, err := q.rdb.ZRangeWithScores(ctx, k.dead, start, start+deadPage-1).Result()
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	members := make([]string, len(ids))
	for i, z := range ids {
		members[i], _ = z.Member.(string)
	}
	stored, err := q.rdb.HMGet(ctx, k.deadMsg, members...).Result()
	if err != nil {
		return nil, fmt.Errorf("read dead letters: %w", err)
	}
	letters := make([]message.DeadLetter, len(ids))
	for i := range letters {
		text, _ := stored[i].(string)
		letters[i] = message.DecodeDeadLetter(members[i], text)
		letters[i].Queue = q.name
		letters[i].DiedAt = time.UnixMilli(int64(ids[i].Score))
	}
	return letters, nil
}

// deadBatch is how many dead letters one script handles at the most.
const deadBatch = 100

// Redrive puts dead letters back, due now, with their attempts forgotten. Its
// codes are Done, NotFound and NoBody; one code a member, by index.
func (q *Queue) Redrive(ctx context.Context, members []string) ([]Code, error) {
	return q.eachDead(ctx, members, func(l *Layout, k shardKeys, ids []any) (*redis.Cmd, error) {
		return redriveScript.run(ctx, q.client(ctx),
			[]string{k.due, k.msg, k.attempts, k.dead, k.deadMsg, k.meta, k.wake},
			append([]any{l.Epoch, MaxBatchBytes}, ids...)...)
	})
}

// Purge deletes dead letters for good. Its codes are Done and NotFound; one
// code a member, by index.
func (q *Queue) Purge(ctx context.Context, members []string) ([]Code, error) {
	return q.eachDead(ctx, members, func(l *Layout, k shardKeys, ids []any) (*redis.Cmd, error) {
		return purgeScript.run(ctx, q.client(ctx), []string{k.dead, k.deadMsg, k.meta}, append([]any{l.Epoch}, ids...)...)
	})
}

// eachDead runs an operator's verb for all members, in batches of one shard.
// Where a reply is lost and the batch is run again, what the first run did is
// answered with NotFound.
func (q *Queue) eachDead(
	ctx context.Context, members []string, run func(*Layout, shardKeys, []any) (*redis.Cmd, error),
) ([]Code, error) {
	codes := make([]Code, len(members))
	pending := make([]int, len(members))
	for i := range members {
		pending[i] = i
	}
	for len(pending) > 0 {
		var rest []int
		err := q.repeat(ctx, func(layout *Layout) error {
			shard, ids, at := 0, []any(nil), []int(nil)
			rest = nil
			for _, i := range pending {
				id, key := message.SplitMember(members[i])
				home := sharding.Home(key, id, layout.Shards)
				if len(ids) == deadBatch || len(ids) > 0 && home != shard {
					rest = append(rest, i)
					continue
				}
				shard, ids, at = home, append(ids, members[i]), append(at, i)
			}
			cmd, err := run(layout, layout.keys.shards[shard], ids)
			if err != nil {
				return err
			}
			r := newReply(cmd)
			if r.int(0) == statusReload {
				return errReload
			}
			for n, i := range at {
				if codes[i] = Code(r.int(2 + n)); codes[i] == NotLooked {
					rest = append(rest, i)
				}
			}
			return r.bad
		})
		if err != nil {
			return codes, err
		}
		pending = rest
	}
	return codes, nil
}
