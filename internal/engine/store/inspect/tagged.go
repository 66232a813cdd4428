package inspect

import (
	"context"
	"slices"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// readTagged reads the next messages of a shard that have the tag, in the order of
// their members: one that moves, or is moved by who lists it, stays in its place.
func (l *lister) readTagged(ctx context.Context, s *stream, count int) error {
	k := l.layout.Keys()[s.shard]
	r, err := askShard(ctx, l.queue, l.layout, s.shard, scripts.Tagged, []string{k.Tags, k.Due, k.Msg, k.Dead, k.Meta},
		l.request.Tag, s.after.member, count)
	if err != nil {
		return err
	}
	entries, err := l.placed(ctx, s.shard, r.List(2))
	if err != nil {
		return err
	}
	s.add(entries, count)
	return nil
}

// entriesOf are the places of messages as the scripts tell them.
func entriesOf(shard int, list *scripts.Reply) (entries []entry, err error) {
	for i := 0; i+2 < len(list.Values); i += 3 {
		e := entry{shard: shard, member: list.Text(i), score: list.Int(i + 2)}
		switch store.Code(list.Int(i + 1)) {
		case store.Dead:
			e.state = StateDead
		case store.InFlight:
			e.state = StateInFlight
		default:
			e.isGone = list.Int(i+1) != int64(store.Waiting) // Its tag's entry, or its other home, was read before it.
			if e.state = StateScheduled; e.score >= message.ParkedFrom {
				e.state = StateParked
			}
		}
		entries = append(entries, e)
	}
	return entries, list.Err
}

// mostAsked is how often it is asked where messages are that were in flight, and then in no
// claim: each time, they have been put back and claimed again between two reads.
const mostAsked = 5

// scoreInFlight gives messages in flight the scores of their claims. One that was settled
// meanwhile is looked for again.
func (l *lister) scoreInFlight(ctx context.Context, shard int, entries []entry) error {
	flying := func(e entry) bool { return e.state == StateInFlight && e.score == 0 }
	for range mostAsked {
		if !slices.ContainsFunc(entries, flying) {
			return nil
		}
		scores := map[string]int64{}
		err := eachClaimed(ctx, l.queue, l.layout.Keys()[shard], func(score int64, member string) { scores[member] = score })
		if err != nil {
			return err
		}
		var asked []string
		for i := range entries {
			if e := &entries[i]; flying(*e) {
				if e.score = scores[e.member]; e.score == 0 {
					asked = append(asked, e.member)
				}
			}
		}
		if len(asked) == 0 {
			return nil
		}
		r, err := l.places(ctx, shard, asked)
		if err != nil {
			return err
		}
		again, err := entriesOf(shard, r.List(5))
		if err != nil {
			return err
		}
		for i := range entries {
			if at := slices.IndexFunc(again, func(e entry) bool { return e.member == entries[i].member }); at >= 0 {
				entries[i] = again[at]
			}
		}
	}
	return nil
}
