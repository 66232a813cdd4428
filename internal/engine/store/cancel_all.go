package store

import (
	"context"
	"errors"
	"slices"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// CancelledAll counts what became of the messages that a [Producer.CancelAll] has met. Those
// that somebody else has ended meanwhile, and those of topics that the caller may not
// touch, are not among them.
type CancelledAll struct {
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
func (q *Producer) CancelAll(ctx context.Context, tag, key string, most int, durable Durability) (c CancelledAll, more bool, err error) {
	layout, err := q.AwaitLayout(ctx)
	if err != nil {
		return c, false, err
	}
	filter := Filter{Tag: tag, Key: key}
	for shard := 0; shard < layout.InUse(); shard++ {
		if key != "" && !slices.Contains(layout.Homes("", key), shard) {
			continue
		}
		w := &cancelWalk{core: q.core, shard: shard, filter: filter, at: scanPlace{Shard: shard, Cursor: "0"}}
		for !w.isOver {
			members, err := w.next(ctx)
			if err != nil {
				return c, true, wrapUnavailable(err)
			}
			for part := range slices.Chunk(members, MaxBatch) {
				if c.Done+c.MaybePublished >= most {
					return c, true, nil
				}
				if err := c.add(q.cancelMembers(ctx, tag, part, durable)); err != nil {
					return c, true, err
				}
			}
		}
		if layout, err = q.Layout(ctx); err != nil {
			return c, true, wrapUnavailable(err)
		}
	}
	return c, false, nil
}

// cancelMembers cancels messages if they have the tag, unless that is empty.
func (q *Producer) cancelMembers(ctx context.Context, tag string, members []string, durable Durability) []Answer {
	v := cancelVerb
	v.durable = durable
	if tag != "" {
		v.alone = true
		v.head = func(r *run) []any {
			return []any{r.layout.Epoch, r.notAfter, r.number(), tombstone.Milliseconds(), scripts.Flag(r.last), MaxBatchBytes, "t" + tag, r.topics}
		}
	}
	calls := make([]*call, len(members))
	for i, token := range newTokens(len(members)) {
		id, key := message.SplitMember(members[i])
		calls[i] = newCall(id, key, token, nil)
	}
	q.do(ctx, &v, calls)
	return answers(calls)
}

func (c *CancelledAll) add(list []Answer) (err error) {
	for _, a := range list {
		if a.Err != nil {
			if !errors.Is(err, ErrUnknown) { // Which says more.
				err = a.Err
			}
			continue
		}
		switch a.Code { //nolint:exhaustive // The others have nothing to be counted.
		case Done:
			c.Done++
		case DoneMaybePublished:
			c.MaybePublished++
		case InFlight:
			c.TooLate++
		}
		if a.NotDurable {
			c.NotDurable, c.Missing = c.NotDurable+1, a.Missing
		}
	}
	return err
}

// cancelWalk goes through the names of one shard's messages: by the index of the tag; or
// those of a Key by a scan of what lives, and then by a listing of what is dead.
type cancelWalk struct {
	*core

	shard  int
	filter Filter
	stream stream // of the index, or of the dead
	at     scanPlace
	names  int // how many the next page of the scan has
	isDead bool
	isOver bool
}

// next are the names of a page.
func (w *cancelWalk) next(ctx context.Context) (members []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, MaxCall)
	defer cancel()
	err = w.repeat(ctx, func(layout *Layout) error {
		if members = nil; w.shard >= layout.InUse() { // It has drained, and was dropped.
			w.isOver = true
			return nil
		}
		l := &lister{core: w.core, layout: layout, request: &ListRequest{Filter: w.filter}}
		entries, err := w.page(ctx, l)
		for _, e := range entries {
			if _, key := message.SplitMember(e.member); w.filter.Key == "" || key == w.filter.Key {
				members = append(members, e.member)
			}
		}
		return err
	})
	return members, err
}

func (w *cancelWalk) page(ctx context.Context, l *lister) ([]entry, error) {
	if w.filter.Tag == "" && !w.isDead {
		entries, after, err := l.scan(ctx, w.at, "", &w.names)
		if err != nil {
			return nil, err
		}
		w.at, w.isDead = after, after.Shard != w.shard
		return entries, nil
	}
	s := stream{shard: w.shard, after: w.stream.after}
	var err error
	if w.filter.Tag != "" {
		s.after.state = taggedPlace
		err = l.readTagged(ctx, &s, namesPage)
	} else {
		s.after.state = slices.Index(states, StateDead)
		err = l.read(ctx, &s, "-inf", "+inf", namesPage)
	}
	if err != nil {
		return nil, err
	}
	w.stream, w.isOver = s, s.isWhole
	return s.entries, nil
}
