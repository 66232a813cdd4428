package job

import (
	"context"
	"errors"
	"slices"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

// CancelTally counts the results of a [CancelAll]. It leaves out messages that
// somebody else has ended meanwhile, and those of topics that the caller may not
// touch.
type CancelTally struct {
	Done, MaybePublished, TooLate int
	// NotDurable counts those that are done but lack confirmations; Missing says why, for
	// the last one.
	NotDurable int
	Missing    error
}

// CancelAll cancels the messages that have the tag and the Key; an empty one is ignored. It
// misses no message that exists from its beginning to its end, wherever that moves
// meanwhile. After most messages it stops and returns more = true. It also stops at the
// first error, and does not count the messages of that error. It may be called again.
func CancelAll(
	ctx context.Context, queue *store.Queue, tag, key string, most int, durable store.Durability,
) (c CancelTally, more bool, err error) {
	layout, err := queue.AwaitLayout(ctx)
	if err != nil {
		return c, false, err
	}
	producer, filter := queue.Producer(), inspect.Filter{Tag: tag, Key: key}
	for walked := map[int]bool{}; ; {
		shard := nextShard(layout, key, walked)
		if shard < 0 {
			break
		}
		for walk := inspect.NewWalk(queue, filter, shard); !walk.IsOver(); {
			members, err := walk.Next(ctx)
			if err != nil {
				return c, true, store.Unavailable(err)
			}
			for part := range slices.Chunk(members, store.MaxBatch) {
				if c.Done+c.MaybePublished >= most {
					return c, true, nil
				}
				if err := c.add(producer.CancelMembers(ctx, tag, part, durable)); err != nil {
					return c, true, err
				}
			}
		}
		walked[shard] = true
		if layout, err = queue.Layout(ctx); err != nil {
			return c, true, store.Unavailable(err)
		}
	}
	return c, false, nil
}

// nextShard returns the first shard that may have messages of the Key (or any, if the Key is empty)
// and was not walked, or -1. A layout learned on the way may have homes before the current one.
func nextShard(l *store.Layout, key string, walked map[int]bool) int {
	for shard := range l.InUse() {
		if !walked[shard] && (key == "" || slices.Contains(l.Homes("", key), shard)) {
			return shard
		}
	}
	return -1
}

func (c *CancelTally) add(list []store.Answer) (err error) {
	for _, a := range list {
		if a.Err != nil {
			if !errors.Is(err, store.ErrUnknown) { // ErrUnknown says more.
				err = a.Err
			}
			continue
		}
		switch a.Code { //nolint:exhaustive // The others are not counted.
		case store.Done:
			c.Done++
		case store.DoneMaybePublished:
			c.MaybePublished++
		case store.InFlight:
			c.TooLate++
		}
		if a.NotDurable {
			c.NotDurable, c.Missing = c.NotDurable+1, a.Missing
		}
	}
	return err
}
