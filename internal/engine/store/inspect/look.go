package inspect

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// textsAtOnce is how many texts are read together.
const textsAtOnce = 32 * store.BodiesAtOnce

// look puts those that the filter lets through into the page, until it is full, and
// returns how many it has looked at.
func (l *lister) look(ctx context.Context, batch []entry) (looked int, err error) {
	for looked < len(batch) && len(l.page.Messages) < l.request.Limit {
		// Few are read beyond the limit.
		n := min(len(batch)-looked, max(store.BodiesAtOnce, min(textsAtOnce, l.request.Limit-len(l.page.Messages))))
		texts, err := l.texts(ctx, batch[looked:looked+n])
		if err != nil {
			return looked, err
		}
		for i, e := range batch[looked : looked+n] {
			if len(l.page.Messages) == l.request.Limit {
				return looked + i, nil
			}
			if m, ok := l.listed(e, texts[i]); ok {
				l.page.Messages = append(l.page.Messages, m)
			} else if texts[i].stored == nil && l.named(e) && !e.isGone {
				l.moved = append(l.moved, e.member)
			}
		}
		looked += n
	}
	return looked, nil
}

// text is what Redis holds of a message; stored is nil where it is not there any more.
type text struct{ stored, attempts *string }

// texts reads what the filter cannot leave out by their names.
func (l *lister) texts(ctx context.Context, batch []entry) ([]text, error) {
	type source struct {
		shard int
		dead  bool
	}
	bySource := map[source][]int{}
	for i, e := range batch {
		if l.named(e) {
			from := source{e.shard, e.state == StateDead}
			bySource[from] = append(bySource[from], i)
		}
	}
	texts := make([]text, len(batch))
	pipe := l.queue.Redis(ctx).Pipeline()
	var reads []func()
	read := func(key string, indexes []int, into func(t *text) **string) {
		members := make([]string, len(indexes))
		for n, i := range indexes {
			members[n] = batch[i].member
		}
		cmd := pipe.HMGet(ctx, key, members...)
		reads = append(reads, func() {
			for n, value := range cmd.Val() {
				if s, ok := value.(string); ok {
					*into(&texts[indexes[n]]) = &s
				}
			}
		})
	}
	stored := func(t *text) **string { return &t.stored }
	for from, indexes := range bySource {
		k := l.layout.Keys()[from.shard]
		for len(indexes) > 0 {
			n := min(store.BodiesAtOnce, len(indexes))
			if from.dead {
				read(k.DeadMsg, indexes[:n], stored)
			} else {
				read(k.Msg, indexes[:n], stored)
				read(k.Attempts, indexes[:n], func(t *text) **string { return &t.attempts })
			}
			indexes = indexes[n:]
		}
	}
	if len(reads) == 0 {
		return texts, nil
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	for _, take := range reads {
		take()
	}
	return texts, nil
}

// named reports whether the filter lets through what is known of the message without its text.
func (l *lister) named(e entry) bool {
	id, key := message.SplitMember(e.member)
	f := &l.request.Filter
	due, isKnown := e.dueAt()
	return (f.State == "" || f.State == e.state) && strings.HasPrefix(id, f.IDPrefix) && (f.Key == "" || f.Key == key) &&
		(!isKnown || f.isDue(due))
}

// dueAt is when the message is due, if its place tells that.
func (a entry) dueAt() (due time.Time, isKnown bool) {
	if a.state != StateScheduled && a.state != StateInFlight {
		return due, false
	}
	_, ms := message.SplitScore(a.score)
	return time.UnixMilli(ms), true
}

func (f *Filter) isDue(due time.Time) bool {
	return (f.From.IsZero() || !due.Before(f.From)) && (f.To.IsZero() || due.Before(f.To))
}

// listed is the message, if it is still there and the filter lets it through.
func (l *lister) listed(e entry, t text) (m Listed, ok bool) {
	if t.stored == nil {
		return m, false
	}
	id, key := message.SplitMember(e.member)
	m = Listed{State: e.state}
	if e.state == StateDead {
		m.Found = deadFound(l.queue.Name(), id, key, *t.stored, e.score)
	} else {
		code := store.Waiting
		if e.state == StateInFlight {
			code = store.InFlight
		}
		attempts := ""
		if t.attempts != nil {
			attempts = *t.attempts
		}
		m.Found = livingFound(l.queue.Name(), code, id, key, attempts, *t.stored, e.score)
	}
	f := &l.request.Filter
	due, isKnown := e.dueAt()
	if !isKnown {
		due = m.Found.DueAt
	}
	hasTag := f.Tag == "" || slices.Contains(m.Found.Tags(), f.Tag)
	return m, f.isDue(due) && hasTag && f.isReason(&m.Found) && (f.Topic == "" || f.Topic == m.Found.Topic)
}

// isReason reports whether the filter lets through why the message is dead. One that cannot
// be read says so in place of its reason, so both count.
func (f *Filter) isReason(m *Found) bool {
	is := func(reason string) bool {
		return strings.Contains(reason, f.ReasonContains) && (f.Reason == "" || f.Reason == reason)
	}
	return is(m.Reason) || m.Err != nil && is(m.Err.Error())
}
