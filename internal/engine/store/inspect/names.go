package inspect

import (
	"context"
	"slices"
	"strconv"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

const (
	// MaxNames limits the names of a page.
	MaxNames = 500
	// scanBytes is how many bytes of messages the scan for a page of names may read.
	scanBytes = 256 << 10
)

// ScanPlace is a position in the scan of the shards' names. A cursor is valid only on the
// server that returned it.
type ScanPlace struct {
	Shard  int    `json:"shard"`
	Cursor string `json:"cursor"`
	Server string `json:"server"`
}

// Scan reads the names of all messages that wait or are in flight, shard by shard. A scan of a hash
// returns every name that is in it from the scan's beginning to its end, wherever the message moves.
type Scan struct {
	queue  *store.Queue
	filter Filter
	mark   string
	page   int // how many names to read next
}

// NewScan starts a scan, which skips messages whose token begins with mark.
func NewScan(queue *store.Queue, filter Filter, mark string) *Scan {
	return &Scan{queue: queue, filter: filter, mark: mark}
}

// NamesPage is a page of names.
type NamesPage struct {
	// Messages passed the filter; Moved names those that had moved before they were read.
	Messages []ListItem
	Moved    []string
	// Looked is about how many names were read.
	Looked int
	// After is where the next page begins, unless it IsLast.
	After  ScanPlace
	IsLast bool
}

// Next reads the page at a place.
func (s *Scan) Next(ctx context.Context, at ScanPlace) (page NamesPage, err error) {
	err = s.queue.Repeat(ctx, func(layout *store.Layout) error {
		for s.filter.Key != "" && at.Shard < layout.InUse() && !slices.Contains(layout.Homes("", s.filter.Key), at.Shard) {
			at = ScanPlace{Shard: at.Shard + 1, Cursor: "0"}
		}
		if at.Shard >= layout.InUse() {
			page = NamesPage{After: at, IsLast: true}
			return nil
		}
		l := newLister(s.queue, layout, &s.filter)
		entries, after, err := l.scan(ctx, at, s.mark, &s.page)
		if err != nil {
			return err
		}
		if _, err := l.look(ctx, entries); err != nil {
			return err
		}
		page = NamesPage{Messages: l.page.Messages, Moved: l.moved, Looked: s.page, After: after, IsLast: after.Shard >= layout.InUse()}
		return nil
	})
	return page, err
}

// Named reads messages by name. It returns those that pass the filter, and the names of
// those that had moved before they were read.
func (a *Admin) Named(ctx context.Context, filter *Filter, members []string) (found []ListItem, moved []string, err error) {
	err = a.queue.Repeat(ctx, func(layout *store.Layout) error {
		l := newLister(a.queue, layout, filter)
		homes := map[int][]string{}
		for _, member := range members {
			for _, home := range layout.Homes(message.SplitMember(member)) {
				homes[home] = append(homes[home], member)
			}
		}
		for shard, members := range homes {
			r, err := l.places(ctx, shard, members)
			if err != nil {
				return err
			}
			entries, err := l.placed(ctx, shard, r.List(5))
			if err != nil {
				return err
			}
			if _, err := l.look(ctx, entries); err != nil {
				return err
			}
		}
		found, moved = l.page.Messages, l.moved
		return nil
	})
	return found, moved, err
}

// newLister returns a lister without a limit, for messages whose places are known.
func newLister(queue *store.Queue, layout *store.Layout, filter *Filter) *lister {
	return &lister{queue: queue, layout: layout, request: &ListRequest{Filter: *filter, Limit: 1 << 30}}
}

// scan reads a page of about count names of a shard, and returns the place after it. If
// another server has taken over, it starts the shard again.
func (l *lister) scan(ctx context.Context, at ScanPlace, mark string, count *int) (entries []entry, after ScanPlace, err error) {
	*count = max(1, *count)
	f := &l.request.Filter
	pattern, least, most := "*", "0", strconv.FormatInt(message.ParkedFrom, 10)
	if f.Key != "" {
		pattern = globEscaper.Replace(message.Member(f.IDPrefix, f.Key)) + "*"
	}
	if !f.From.IsZero() {
		least = strconv.FormatInt(f.From.UnixMilli(), 10)
	}
	if !f.To.IsZero() {
		most = strconv.FormatInt(f.To.UnixMilli(), 10)
	}
	r, err := l.places(ctx, at.Shard, nil, at.Cursor, *count, pattern, f.Topic, f.IDPrefix, mark, least, most)
	if err != nil {
		return nil, at, err
	}
	after = ScanPlace{Shard: at.Shard, Server: r.Text(2), Cursor: r.Text(3)}
	*count = scripts.NextPage(*count, r.Int(4), scanBytes, MaxNames)
	if at.Cursor != "0" && at.Server != after.Server {
		return nil, ScanPlace{Shard: at.Shard, Cursor: "0"}, r.Err
	}
	if after.Cursor == "0" {
		after.Shard++
	}
	entries, err = l.placed(ctx, at.Shard, r.List(5))
	return entries, after, err
}

// places asks where these members are, or, with the arguments of a page, where those of the page are.
func (l *lister) places(ctx context.Context, shard int, members []string, page ...any) (*scripts.Reply, error) {
	if page == nil {
		page = []any{"", 0, "", "", "", "", 0, 0}
	}
	args := slices.Clone(page)
	for _, member := range members {
		args = append(args, member)
	}
	k := l.layout.Keys()[shard]
	return askShard(ctx, l.queue, l.layout, shard, scripts.Members, []string{k.Msg, k.Due, k.Dead, k.Meta}, args...)
}

// placed decodes the places of messages from a script's list.
func (l *lister) placed(ctx context.Context, shard int, list *scripts.Reply) ([]entry, error) {
	entries, err := entriesOf(shard, list)
	if err != nil {
		return nil, err
	}
	return entries, l.scoreInFlight(ctx, shard, entries)
}

// Walk reads the names of one shard's messages with a tag or a Key, and misses none that
// exists from its beginning to its end. It uses the index of the tag; for a Key, it scans the
// live messages and then lists the dead ones.
type Walk struct {
	queue  *store.Queue
	shard  int
	filter Filter
	after  place // in the index, or in the dead letters
	at     ScanPlace
	names  int // how many the next page of the scan reads
	isDead bool
	isOver bool
}

// NewWalk starts a walk; the filter has a Tag, a Key or both, and nothing else.
func NewWalk(queue *store.Queue, filter Filter, shard int) *Walk {
	w := &Walk{queue: queue, shard: shard, filter: filter, at: ScanPlace{Shard: shard, Cursor: "0"}}
	if w.after.state = taggedPlace; filter.Tag == "" {
		w.after.state = slices.Index(states, StateDead)
	}
	return w
}

// IsOver reports whether no page follows.
func (w *Walk) IsOver() bool { return w.isOver }

// Next returns the next page of names.
func (w *Walk) Next(ctx context.Context) (members []string, err error) {
	err = w.queue.Repeat(ctx, func(layout *store.Layout) error {
		if members = nil; w.shard >= layout.InUse() { // The shard has drained and was dropped.
			w.isOver = true
			return nil
		}
		entries, err := w.page(ctx, newLister(w.queue, layout, &w.filter))
		for _, e := range entries {
			if _, key := message.SplitMember(e.member); w.filter.Key == "" || key == w.filter.Key {
				members = append(members, e.member)
			}
		}
		return err
	})
	return members, err
}

func (w *Walk) page(ctx context.Context, l *lister) ([]entry, error) {
	if w.filter.Tag == "" && !w.isDead {
		entries, after, err := l.scan(ctx, w.at, "", &w.names)
		if err != nil {
			return nil, err
		}
		w.at, w.isDead = after, after.Shard != w.shard
		return entries, nil
	}
	s := stream{shard: w.shard, after: w.after}
	read := func() error { return l.read(ctx, &s, "-inf", "+inf", MaxNames) }
	if w.filter.Tag != "" {
		read = func() error { return l.readTagged(ctx, &s, MaxNames) }
	}
	if err := read(); err != nil {
		return nil, err
	}
	w.after, w.isOver = s.after, s.isWhole
	return s.entries, nil
}
