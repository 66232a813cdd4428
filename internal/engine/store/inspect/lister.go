package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

const (
	// listedAtOnce is how many messages of a state are read together.
	listedAtOnce = 256
	// leastPage is how many messages of a shard are read at once, at least.
	leastPage = 32
	// parallelPages is how many shards are read at once.
	parallelPages = 8
)

// lister makes one page of a listing.
type lister struct {
	queue   *store.Queue
	layout  *store.Layout
	request *ListRequest
	budget  int // how many it may still read
	page    Page
	moved   []string // members whose text was not at their place: they have moved
}

// entry is a message by its place in a shard.
type entry struct {
	shard  int
	rank   int64 // its rank in the order: the score, unless the order is that of the members
	score  int64
	member string
	state  State
	isGone bool // no longer anywhere
}

func (a entry) compare(b entry) int {
	return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.member, b.member), cmp.Compare(a.shard, b.shard))
}

// place returns the position after the entry in the order of that state.
func (a entry) place(state int) place {
	return place{state: state, begun: true, score: a.rank, member: a.member}
}

// list goes through the states until the page is full, or it has read as many
// messages as it may.
func (l *lister) list(ctx context.Context, at place) (Page, error) {
	for {
		done, err := l.state(ctx, &at)
		if err != nil {
			return Page{}, err
		}
		switch {
		case !done:
			l.page.Next = at.String()
			return l.page, nil
		case l.request.State != "" || at.state >= len(states)-1:
			return l.page, nil
		}
		at = place{state: at.state + 1}
	}
}

// state lists one state from a place on, and moves the place. It is done if nothing follows.
func (l *lister) state(ctx context.Context, at *place) (done bool, err error) {
	m, err := l.merge(ctx, *at)
	for err == nil {
		var batch []entry
		if batch, err = m.next(ctx, min(listedAtOnce, max(l.budget, 1))); err != nil {
			break
		}
		if len(batch) == 0 {
			return true, nil
		}
		var looked int
		if looked, err = l.look(ctx, batch); err != nil {
			break
		}
		*at = batch[looked-1].place(at.state)
		if l.budget -= looked; looked < len(batch) || l.budget <= 0 || len(l.page.Messages) >= l.request.Limit {
			return false, nil
		}
	}
	return false, fmt.Errorf("list: %w", err)
}

// merge merges the messages of all shards in one state into one order.
type merge struct {
	streams []*stream
	fill    func(ctx context.Context, s *stream) error // nil: the streams are whole
}

// stream is one shard's part, from a place on.
type stream struct {
	shard   int
	after   place
	entries []entry
	isWhole bool // nothing follows the entries
}

// add appends the next entries. If there are fewer than asked for, they are the last.
func (s *stream) add(entries []entry, asked int) {
	s.entries = append(s.entries, entries...)
	if n := len(entries); n > 0 {
		s.after = entries[n-1].place(s.after.state)
	}
	s.isWhole = len(entries) < asked
}

// next returns the next n entries, fewer at the end.
func (m *merge) next(ctx context.Context, n int) (batch []entry, err error) {
	for len(batch) < n {
		if err := m.refill(ctx); err != nil {
			return nil, err
		}
		var least *stream
		for _, s := range m.streams {
			if len(s.entries) > 0 && (least == nil || s.entries[0].compare(least.entries[0]) < 0) {
				least = s
			}
		}
		if least == nil {
			break
		}
		batch, least.entries = append(batch, least.entries[0]), least.entries[1:]
	}
	return batch, nil
}

// refill reads more from the shards whose next entry is not known.
func (m *merge) refill(ctx context.Context) error {
	if !slices.ContainsFunc(m.streams, func(s *stream) bool { return len(s.entries) == 0 && !s.isWhole }) {
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelPages)
	for _, s := range m.streams {
		if len(s.entries) == 0 && !s.isWhole {
			group.Go(func() error { return m.fill(ctx, s) })
		}
	}
	return group.Wait()
}

// merge starts a merge at a place.
func (l *lister) merge(ctx context.Context, at place) (*merge, error) {
	shards := l.layout.InUse()
	if at.state != taggedPlace && states[at.state] == StateInFlight {
		return l.inFlight(ctx, at)
	}
	m := &merge{}
	for shard := range shards {
		m.streams = append(m.streams, &stream{shard: shard, after: at})
	}
	count := min(listedAtOnce, max(leastPage, 2*l.request.Limit/shards))
	if at.state == taggedPlace {
		m.fill = func(ctx context.Context, s *stream) error { return l.readTagged(ctx, s, count) }
		return m, nil
	}
	least, most := l.scores(states[at.state])
	m.fill = func(ctx context.Context, s *stream) error { return l.read(ctx, s, least, most, count) }
	return m, nil
}

// scores returns the range of a state's scores, without its end, within the filter's
// times.
func (l *lister) scores(state State) (least, most string) {
	bound := func(ms int64) string { return strconv.FormatInt(ms, 10) }
	switch state {
	case StateParked:
		return bound(message.ParkedFrom), "+inf"
	case StateDead:
		return "-inf", "+inf"
	case StateScheduled, StateInFlight:
	}
	least, most = "-inf", bound(message.ParkedFrom)
	if from := l.request.From; !from.IsZero() {
		least = bound(from.UnixMilli())
	}
	if to := l.request.To; !to.IsZero() {
		most = bound(min(to.UnixMilli(), message.ParkedFrom))
	}
	return least, most
}

// read reads the next entries of a shard.
func (l *lister) read(ctx context.Context, s *stream, least, most string, count int) error {
	k := l.layout.Keys()[s.shard]
	key, after := k.Due, ""
	if states[s.after.state] == StateDead {
		key = k.Dead
	}
	if s.after.begun {
		after = strconv.FormatInt(s.after.score, 10)
	}
	r, err := askShard(ctx, l.queue, l.layout, s.shard, scripts.Page, []string{key, k.Meta}, least, most, after, s.after.member, count)
	if err != nil {
		return err
	}
	list := r.List(2)
	entries := make([]entry, 0, len(list.Values)/2)
	for i := 0; i+1 < len(list.Values); i += 2 {
		score := list.Int(i + 1)
		entries = append(entries, entry{shard: s.shard, rank: score, score: score, member: list.Text(i), state: states[s.after.state]})
	}
	if err := errors.Join(r.Err, list.Err); err != nil {
		return err
	}
	s.add(entries, count)
	return nil
}

// inFlight reads all claims of all shards, whose size the windows bound.
func (l *lister) inFlight(ctx context.Context, at place) (*merge, error) {
	m := &merge{}
	for shard, k := range l.layout.Keys()[:l.layout.InUse()] {
		s := &stream{shard: shard, isWhole: true}
		err := eachClaimed(ctx, l.queue, k, func(score int64, member string) {
			e := entry{shard: shard, rank: score, score: score, member: member, state: StateInFlight}
			if !at.begun || e.compare(entry{shard: math.MaxInt, rank: at.score, member: at.member}) > 0 {
				s.entries = append(s.entries, e)
			}
		})
		if err != nil {
			return nil, err
		}
		slices.SortFunc(s.entries, entry.compare)
		m.streams = append(m.streams, s)
	}
	return m, nil
}

// eachClaimed calls do for each message in the claims of a shard.
func eachClaimed(ctx context.Context, queue *store.Queue, k keys.Shard, do func(score int64, member string)) error {
	claims, err := queue.Redis(ctx).HVals(ctx, k.Claims).Result()
	for _, packed := range claims {
		if err := scripts.EachPacked(packed, do); err != nil {
			return err
		}
	}
	return err
}

// readTagged reads the next messages of a shard that have the tag, in the order of
// their members, so a message that moves, even by the caller, keeps its place.
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

// entriesOf decodes the places of messages from a script's reply.
func entriesOf(shard int, list *scripts.Reply) (entries []entry, err error) {
	for i := 0; i+2 < len(list.Values); i += 3 {
		e := entry{shard: shard, member: list.Text(i), score: list.Int(i + 2)}
		switch store.Code(list.Int(i + 1)) {
		case store.Dead:
			e.state = StateDead
		case store.InFlight:
			e.state = StateInFlight
		default:
			e.isGone = list.Int(i+1) != int64(store.Waiting) // The entry of its tag, or its other home, was read before it went.
			if e.state = StateScheduled; e.score >= message.ParkedFrom {
				e.state = StateParked
			}
		}
		entries = append(entries, e)
	}
	return entries, list.Err
}

// mostAsked limits how often to look for messages that were in flight and are then in no
// claim: each time, they have been put back and claimed again between two reads.
const mostAsked = 5

// scoreInFlight gives messages in flight the scores of their claims, and looks again for
// those settled meanwhile.
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

// textsAtOnce is how many texts are read together.
const textsAtOnce = 32 * store.BodiesAtOnce

// look adds the messages that pass the filter to the page, until it is full, and
// returns how many it has read.
func (l *lister) look(ctx context.Context, batch []entry) (looked int, err error) {
	for looked < len(batch) && len(l.page.Messages) < l.request.Limit {
		// Read only a few beyond the limit.
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

// text is what Redis has stored of a message; stored is nil if it is gone.
type text struct{ stored, attempts *string }

// texts reads the messages that the filter cannot reject by name.
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

// named reports whether the filter accepts the message as far as it is known without its text.
func (l *lister) named(e entry) bool {
	id, key := message.SplitMember(e.member)
	f := &l.request.Filter
	due, isKnown := e.dueAt()
	return (f.State == "" || f.State == e.state) && strings.HasPrefix(id, f.IDPrefix) && (f.Key == "" || f.Key == key) &&
		(!isKnown || f.isDue(due))
}

// dueAt returns when the message is due, if its place says so.
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

// listed returns the message if it still exists and passes the filter.
func (l *lister) listed(e entry, t text) (m ListItem, ok bool) {
	if t.stored == nil {
		return m, false
	}
	id, key := message.SplitMember(e.member)
	m = ListItem{State: e.state}
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

// isReason reports whether the filter accepts the reason why the message is dead. The error
// of an unreadable message stands in for its reason, so both count.
func (f *Filter) isReason(m *Snapshot) bool {
	is := func(reason string) bool {
		return strings.Contains(reason, f.ReasonContains) && (f.Reason == "" || f.Reason == reason)
	}
	return is(m.Reason) || m.Err != nil && is(m.Err.Error())
}
