package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
)

// deadPage is how many dead letters are read at once; they may be large.
const deadPage = 16

// DeadLetters calls yield for the dead letters of all shards, oldest first
// within a shard, until yield returns false. It may or may not see letters that
// are added or removed meanwhile.
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

// Redrive puts dead letters back, due now, with their attempts forgotten. It
// returns one code per member, by index: Done, NotFound or NoBody.
func (a *Admin) Redrive(ctx context.Context, members []string) ([]store.Code, error) {
	return a.changeDead(ctx, store.BulkChange{To: &store.When{Relative: true}}, members)
}

// Purge deletes dead letters for good. It returns one code per member, by
// index: Done or NotFound.
func (a *Admin) Purge(ctx context.Context, members []string) ([]store.Code, error) {
	return a.changeDead(ctx, store.BulkChange{}, members)
}

// changeDead makes a change that jobs make, too, for the members that an operator names. If a
// copy may be out, the dead letter itself says so, so the code is Done then, too. The error is
// that of some member; each member with an error has the code NotLooked.
func (a *Admin) changeDead(ctx context.Context, change store.BulkChange, members []string) (codes []store.Code, err error) {
	change.OnlyDead = true
	items := make([]store.BulkItem, len(members))
	for i, token := range store.NewTokens(len(members)) {
		items[i] = store.BulkItem{Member: members[i], Token: token}
	}
	for _, answer := range a.queue.ChangeMany(ctx, change, items) {
		if answer.Code == store.DoneMaybePublished {
			answer.Code = store.Done
		}
		codes, err = append(codes, answer.Code), cmp.Or(err, answer.Err)
	}
	return codes, err
}

// trimStep is about how many dead letters one step of [Admin.TrimDead] reads, trimShard how many of
// one shard at most.
const (
	trimStep  = 1000
	trimShard = 100
)

// DeadLimits say which dead letters may stay. 0 means no limit.
type DeadLimits struct {
	// Keep is how long a dead letter stays, Max how many there may be.
	Keep time.Duration
	Max  int
}

// TrimDead purges dead letters beyond the limits, the oldest of all shards first. A call
// does a bounded part of the work; more says that another call is needed.
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

// deadHeads holds the oldest dead letters of each shard.
type deadHeads struct {
	oldest []redis.Z
	total  int
	// complete is the time up to which they include every dead letter.
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

// beyond returns the members to purge, among those known to be the oldest.
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
