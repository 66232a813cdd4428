package store

import (
	"context"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// readTagged reads the next messages of a shard that have the tag, in the order of
// their members: one that moves, or is moved by who lists it, stays in its place.
func (l *lister) readTagged(ctx context.Context, s *stream, count int) error {
	k := l.layout.Keys()[s.shard]
	cmd, err := l.conn.Run(ctx, scripts.Tagged, []string{k.Tags, k.Due, k.Msg, k.Dead, k.Meta},
		l.layout.Epoch, l.request.Tag, s.after.member, count)
	if err != nil {
		return err
	}
	r := scripts.NewReply(cmd)
	if r.Int(0) == statusReload {
		return l.layout.Refused(r, s.shard)
	}
	list, flying := r.List(2), false
	for i := 0; i+2 < len(list.Values); i += 3 {
		e := entry{shard: s.shard, member: list.Text(i), score: list.Int(i + 2)}
		switch Code(list.Int(i + 1)) {
		case Dead:
			e.state = StateDead
		case InFlight:
			e.state, flying = StateInFlight, true
		default: // What has ended has no text.
			if e.state = StateScheduled; e.score >= message.ParkedFrom {
				e.state = StateParked
			}
		}
		s.entries = append(s.entries, e)
	}
	if n := len(s.entries); n > 0 {
		s.after.begun, s.after.member = true, s.entries[n-1].member
	}
	s.isWhole = len(s.entries) < count
	if r.Err == nil {
		r.Err = list.Err
	}
	if r.Err == nil && flying {
		return l.scoreInFlight(ctx, s)
	}
	return r.Err
}

// scoreInFlight takes the scores of messages in flight from their claims. One that
// was settled meanwhile has none, and so no due time.
func (l *lister) scoreInFlight(ctx context.Context, s *stream) error {
	claims, err := l.conn.Client(ctx).HVals(ctx, l.layout.Keys()[s.shard].Claims).Result()
	if err != nil {
		return err
	}
	scores := map[string]int64{}
	for _, packed := range claims {
		if err := eachPacked(packed, func(score int64, member string) { scores[member] = score }); err != nil {
			return err
		}
	}
	for i := range s.entries {
		if e := &s.entries[i]; e.state == StateInFlight {
			e.score = scores[e.member]
		}
	}
	return nil
}
