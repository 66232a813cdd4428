package inspect

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
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

// Redrive puts dead letters back, due now, with their attempts forgotten. Its
// codes are Done, NotFound and NoBody; one code a member, by index.
func (a *Admin) Redrive(ctx context.Context, members []string) ([]store.Code, error) {
	return a.changeDead(ctx, store.BulkChange{To: &store.When{Relative: true}}, members)
}

// Purge deletes dead letters for good. Its codes are Done and NotFound; one
// code a member, by index.
func (a *Admin) Purge(ctx context.Context, members []string) ([]store.Code, error) {
	return a.changeDead(ctx, store.BulkChange{}, members)
}

// changeDead is one of the changes that jobs make, for members that the operator names. That a
// copy may be out is told by the dead letter itself, so the code is Done there, too. The error is
// that of a member; NotLooked is the code of each that has one.
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
