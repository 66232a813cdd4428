package inspect

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// deadPage is how many dead letters one read takes; they may be large.
const deadPage = 16

// DeadLetters calls yield for the dead letters of all shards, oldest first
// within a shard, until it returns false. Letters that come or go meanwhile may
// be missed or seen.
func (a *Admin) DeadLetters(ctx context.Context, yield func(message.DeadLetter) bool) error {
	layout, err := a.queue.AwaitLayout(ctx)
	if err != nil {
		return err
	}
	for _, k := range layout.Keys() {
		for start := int64(0); ; start += deadPage {
			letters, err := store.Repeat(ctx, a.queue, func(*store.Layout) ([]message.DeadLetter, error) { return a.deadPage(ctx, k, start) })
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

func (a *Admin) deadPage(ctx context.Context, k keys.Shard, start int64) ([]message.DeadLetter, error) {
	ids, err := a.queue.Redis(ctx).ZRangeWithScores(ctx, k.Dead, start, start+deadPage-1).Result()
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	members := make([]string, len(ids))
	for i, z := range ids {
		members[i], _ = z.Member.(string)
	}
	stored, err := a.queue.Redis(ctx).HMGet(ctx, k.DeadMsg, members...).Result()
	if err != nil {
		return nil, fmt.Errorf("read dead letters: %w", err)
	}
	letters := make([]message.DeadLetter, len(ids))
	for i := range letters {
		text, _ := stored[i].(string)
		letters[i] = message.DecodeDeadLetter(members[i], text)
		letters[i].Queue = a.queue.Name()
		letters[i].DiedAt = time.UnixMilli(int64(ids[i].Score))
	}
	return letters, nil
}

// MaxDead is how many dead letters one script handles at the most.
const MaxDead = 100

// Redrive puts dead letters back, due now, with their attempts forgotten. Its
// codes are Done, NotFound and NoBody; one code a member, by index.
func (a *Admin) Redrive(ctx context.Context, members []string) ([]store.Code, error) {
	return a.eachDead(ctx, members, func(l *store.Layout, k keys.Shard, ids []any) (*redis.Cmd, error) {
		return a.queue.Run(ctx, scripts.Redrive, []string{k.Due, k.Msg, k.Attempts, k.Dead, k.DeadMsg, k.Meta, k.Wake},
			append([]any{l.Epoch, store.MaxBatchBytes}, ids...)...)
	})
}

// Purge deletes dead letters for good. Its codes are Done and NotFound; one
// code a member, by index.
func (a *Admin) Purge(ctx context.Context, members []string) ([]store.Code, error) {
	return a.eachDead(ctx, members, func(l *store.Layout, k keys.Shard, ids []any) (*redis.Cmd, error) {
		keys, history := l.WithHistory(k, []string{k.Dead, k.DeadMsg, k.Meta, k.Gone, k.GoneTTL, k.Settled, k.Tags})
		return a.queue.Run(ctx, scripts.Purge, keys, append([]any{l.Epoch, store.MaxBatchBytes, store.Tombstone.Milliseconds(), history}, ids...)...)
	})
}

// eachDead runs an operator's verb for all members, in batches of one shard.
// Where a reply is lost and the batch is run again, what the first run did is
// answered with NotFound.
func (a *Admin) eachDead(
	ctx context.Context, members []string, run func(*store.Layout, keys.Shard, []any) (*redis.Cmd, error),
) ([]store.Code, error) {
	codes := make([]store.Code, len(members))
	pending := make([]int, len(members))
	for i := range members {
		pending[i] = i
	}
	var current *store.Layout
	stage := make([]int, len(members)) // which of its homes each member asks next
	for len(pending) > 0 {
		err := a.queue.Repeat(ctx, func(layout *store.Layout) error {
			if layout != current {
				current = layout
				clear(stage)
			}
			batch := deadBatchOf(layout, members, pending, stage)
			cmd, err := run(layout, layout.Keys()[batch.shard], batch.ids)
			if err != nil {
				return err
			}
			r := scripts.NewReply(cmd)
			if err := layout.Accepted(r, batch.shard); err != nil {
				return err
			}
			rest := batch.rest
			for n, i := range batch.at {
				codes[i] = store.Code(r.Int(2 + n))
				if codes[i] == store.NotFound && !batch.last[n] {
					codes[i] = store.NotLooked
					stage[i]++
				}
				if codes[i] == store.NotLooked {
					rest = append(rest, i)
				}
			}
			pending = rest
			return r.Err
		})
		if err != nil {
			return codes, err
		}
	}
	return codes, nil
}

// deadVisit is what one run of an operator's verb asks one shard.
type deadVisit struct {
	shard int
	ids   []any
	at    []int  // their places in the list of members
	last  []bool // no other home is left
	rest  []int  // those of other shards, or too many
}

func deadBatchOf(layout *store.Layout, members []string, pending, stage []int) deadVisit {
	var v deadVisit
	for _, i := range pending {
		homes := layout.Homes(message.SplitMember(members[i]))
		home := homes[stage[i]]
		if len(v.ids) == MaxDead || len(v.ids) > 0 && home != v.shard {
			v.rest = append(v.rest, i)
			continue
		}
		v.shard, v.ids, v.at = home, append(v.ids, members[i]), append(v.at, i)
		v.last = append(v.last, stage[i] == len(homes)-1)
	}
	return v
}
