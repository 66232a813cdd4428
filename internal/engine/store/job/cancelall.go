package job

import (
	"context"
	"errors"
	"slices"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

// CancelTally counts what became of the messages that a [CancelAll] has met. Those
// that somebody else has ended meanwhile, and those of topics that the caller may not
// touch, are not among them.
type CancelTally struct {
	Done, MaybePublished, TooLate int
	// NotDurable are done, but fewer copies confirmed it than were asked for; Missing says
	// why of the last one.
	NotDurable int
	Missing    error
}

// CancelAll cancels the messages that have the tag and the Key, those that are not empty: of
// all that are there from its beginning to its end, none is missed, wherever they move
// meanwhile. After that many that are done it stops, and more is true. It stops at the first
// error, too; then the messages of that error are not counted. It may be called again.
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

// nextShard is the first shard where messages of the Key, or any, may be and that was not gone
// through, or -1: a layout that is learned on the way may have homes before that one.
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
			if !errors.Is(err, store.ErrUnknown) { // Which says more.
				err = a.Err
			}
			continue
		}
		switch a.Code { //nolint:exhaustive // The others have nothing to be counted.
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
