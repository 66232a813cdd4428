package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
)

// trimStep is about how many dead letters one step of [Admin.TrimDead] looks at, trimShard how many
// of a shard at the most.
const (
	trimStep  = 1000
	trimShard = 100
)

// DeadLimits say which dead letters may stay. 0 is no limit.
type DeadLimits struct {
	// Keep is how long after its death one stays, Max how many there may be.
	Keep time.Duration
	Max  int
}

// TrimDead purges dead letters beyond the limits, the oldest of all shards first. A call
// does a bounded part; more says that another one is needed.
func (a *Admin) TrimDead(ctx context.Context, limits DeadLimits) (purged int, more bool, err error) {
	heads, err := store.Repeat(ctx, a.queue, func(l *store.Layout) (deadHeads, error) { return a.deadHeads(ctx, l.Keys()[:l.InUse()]) })
	if err != nil {
		return 0, false, fmt.Errorf("look at dead letters: %w", err)
	}
	beyond := heads.beyond(limits, a.queue.Now())
	if len(beyond) == 0 {
		return 0, false, nil
	}
	codes, err := a.Purge(ctx, beyond)
	for _, code := range codes {
		if code == store.Done {
			purged++
		}
	}
	return purged, err == nil, err
}

// deadHeads are the oldest dead letters of each shard.
type deadHeads struct {
	oldest []redis.Z
	total  int
	// complete is until when all that died is among them.
	complete float64
}

func (a *Admin) deadHeads(ctx context.Context, shards []keys.Shard) (heads deadHeads, err error) {
	most := min(max(1, trimStep/len(shards)), trimShard)
	type head struct {
		count  *redis.IntCmd
		oldest *redis.ZSliceCmd
	}
	asked, err := ask(ctx, a.queue, shards, func(pipe redis.Pipeliner, k keys.Shard) head {
		return head{pipe.ZCard(ctx, k.Dead), pipe.ZRangeWithScores(ctx, k.Dead, 0, int64(most-1))}
	})
	if err != nil {
		return deadHeads{}, err
	}
	for _, of := range asked {
		list := of.oldest.Val()
		heads.total += int(of.count.Val())
		heads.oldest = append(heads.oldest, list...)
		if last := len(list) - 1; len(list) == most && (heads.complete == 0 || list[last].Score < heads.complete) {
			heads.complete = list[last].Score
		}
	}
	slices.SortFunc(heads.oldest, func(a, b redis.Z) int { return cmp.Compare(a.Score, b.Score) })
	return heads, nil
}

// beyond are the members that have to go, of those that are known to be the oldest.
func (h *deadHeads) beyond(limits DeadLimits, now time.Time) (members []string) {
	tooMany := 0
	if limits.Max > 0 {
		tooMany = h.total - limits.Max
	}
	for i, letter := range h.oldest {
		isOld := limits.Keep > 0 && now.Sub(time.UnixMilli(int64(letter.Score))) > limits.Keep
		if !isOld && i >= tooMany || h.complete > 0 && letter.Score > h.complete {
			break
		}
		member, _ := letter.Member.(string)
		members = append(members, member)
	}
	return members
}
