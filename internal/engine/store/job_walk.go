package store

import (
	"context"
	"slices"
	"strconv"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// part is a part of a job's walk: a state as it is listed, or one of these.
type part string

const (
	// walkTag goes by the index of the tag, where a message has one place in any state.
	walkTag part = "tag"
	// walkMembers goes by the names of what waits or is in flight, see [JobRun].
	walkMembers part = "members"
)

const (
	// namesPage is how many names a page has at the most.
	namesPage = 500
	// scanBytes is how many bytes of messages a page of names may pass over.
	scanBytes = 256 << 10
)

// walk are the parts of the walk of a job, in their order.
func (s *JobSpec) walk() []part {
	state := s.Filter.State
	if s.isOfDead() {
		state = StateDead
	}
	switch {
	case s.Filter.Tag != "":
		return []part{walkTag}
	case s.DryRun && state == "":
		return []part{part(StateScheduled), part(StateParked), part(StateInFlight), part(StateDead)}
	case s.DryRun || state == StateDead: // Who dies later is listed later.
		return []part{part(state)}
	case state == StateInFlight:
		return []part{walkMembers}
	case state != "":
		return []part{part(state), walkMembers}
	default: // Who is met by its name and then dies was in flight, so it is looked at again.
		return []part{part(StateScheduled), part(StateParked), walkMembers, part(StateDead)}
	}
}

// isOfDead reports whether the job is for dead letters only.
func (s *JobSpec) isOfDead() bool {
	f := &s.Filter
	return f.State == StateDead || f.Reason != "" || f.ReasonContains != "" || s.Verb == JobRedrive || s.Verb == JobPurge
}

// next are messages that the job may mean, at most so many.
func (r *JobRun) next(ctx context.Context, next *jobRecord, most int) ([]Listed, error) {
	if next.IsLast && len(next.Rest) == 0 {
		next.Rest = slices.Clone(next.Left)
	}
	if len(next.Rest) > 0 {
		return r.named(ctx, next, most)
	}
	walk := next.Spec.walk()
	at := walk[min(next.Part, len(walk)-1)]
	if at == walkMembers {
		return r.members(ctx, next, most)
	}
	request := ListRequest{Filter: next.Spec.Filter, Limit: most, After: next.Cursor}
	if at != walkTag {
		request.State = State(at)
	}
	page, err := r.q.admin.List(ctx, request)
	if err != nil {
		return nil, err
	}
	if next.Cursor = page.Next; page.Next == "" {
		next.Part++
	}
	return page.Messages, nil
}

// named are the next of those that the walk has names of. One that the job does not mean any
// more is left no longer.
func (r *JobRun) named(ctx context.Context, next *jobRecord, most int) (found []Listed, err error) {
	names := next.Rest[:min(most, len(next.Rest))]
	var moved []string
	err = r.q.repeat(ctx, func(layout *Layout) error {
		l := r.q.admin.lister(layout, &next.Spec.Filter)
		for shard, members := range l.byHome(names) {
			entries, err := l.where(ctx, shard, members)
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
	if err != nil {
		return nil, err
	}
	if r.moves++; len(moved) < len(names) {
		r.moves = 0
	} else if r.moves > mostAsked {
		moved = nil // They have a place and no text: others tell of it.
	}
	next.Rest = append(next.Rest[len(names):], moved...)
	still := map[string]bool{}
	for _, member := range moved {
		still[member] = true
	}
	for i := range found {
		still[found[i].member()] = still[found[i].member()] || next.means(&found[i])
	}
	next.Left = slices.DeleteFunc(next.Left, func(member string) bool { return !still[member] && slices.Contains(names, member) })
	return found, nil
}

// scanPlace is how far the names of the shards were gone through. A cursor means something
// to the server that gave it only.
type scanPlace struct {
	Shard  int    `json:"shard"`
	Cursor string `json:"cursor"`
	Server string `json:"server"`
}

// members are those of the next pages of names, until there are some or enough was looked
// at. What is more than the step may have is met by its name then.
func (r *JobRun) members(ctx context.Context, next *jobRecord, most int) (found []Listed, err error) {
	at, looked := scanPlace{Cursor: "0"}, 0
	if next.Scan != nil {
		at = *next.Scan
	}
	err = r.q.repeat(ctx, func(layout *Layout) error {
		for at.Shard < layout.InUse() && len(found) < most && looked < mostLooked {
			if key := next.Spec.Filter.Key; key != "" && !slices.Contains(layout.Homes("", key), at.Shard) {
				at = scanPlace{Shard: at.Shard + 1, Cursor: "0"}
				continue
			}
			l := r.q.admin.lister(layout, &next.Spec.Filter)
			entries, after, err := l.scan(ctx, at, next.Mark, &r.names)
			if err != nil {
				return err
			}
			if _, err := l.look(ctx, entries); err != nil {
				return err
			}
			at, looked = after, looked+r.names
			next.Rest = append(next.Rest, l.moved...)
			for i := range l.page.Messages {
				if m := &l.page.Messages[i]; next.means(m) {
					found = append(found, *m)
				}
			}
		}
		if next.Scan = &at; at.Shard >= layout.InUse() {
			next.Part, next.Scan = next.Part+1, nil
		}
		return nil
	})
	if len(found) > most {
		for i := range found[most:] {
			next.Rest = append(next.Rest, found[most+i].member())
		}
		found = found[:most]
	}
	return found, err
}

// lister looks at messages whose places are known, however many.
func (q *Admin) lister(layout *Layout, filter *Filter) *lister {
	return &lister{core: q.core, layout: layout, request: &ListRequest{Filter: *filter, Limit: 1 << 30}}
}

// byHome are the members by the shards that may have them.
func (l *lister) byHome(members []string) map[int][]string {
	homes := map[int][]string{}
	for _, member := range members {
		for _, home := range l.layout.Homes(message.SplitMember(member)) {
			homes[home] = append(homes[home], member)
		}
	}
	return homes
}

// scan reads a page of a shard's names, of so many, and tells the place behind it. Before a
// server that has taken over, the shard begins anew.
func (l *lister) scan(ctx context.Context, at scanPlace, mark string, count *int) (entries []entry, after scanPlace, err error) {
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
	after = scanPlace{Shard: at.Shard, Server: r.Text(2), Cursor: r.Text(3)}
	switch bytes := r.Int(4); {
	case bytes > scanBytes:
		*count = max(1, *count/4)
	case bytes*4 <= scanBytes:
		*count = min(4**count, namesPage)
	}
	if at.Cursor != "0" && at.Server != after.Server {
		return nil, scanPlace{Shard: at.Shard, Cursor: "0"}, r.Err
	}
	if after.Cursor == "0" {
		after.Shard++
	}
	entries, err = l.placed(ctx, at.Shard, r)
	return entries, after, err
}

// where are the members that are in that shard.
func (l *lister) where(ctx context.Context, shard int, members []string) ([]entry, error) {
	r, err := l.places(ctx, shard, members)
	if err != nil {
		return nil, err
	}
	return l.placed(ctx, shard, r)
}

// places asks where these members are; or, with the arguments of a page, those of the page.
func (l *lister) places(ctx context.Context, shard int, members []string, page ...any) (*scripts.Reply, error) {
	if page == nil {
		page = []any{"", 0, "", "", "", "", 0, 0}
	}
	args := append([]any{l.layout.Epoch}, page...)
	for _, member := range members {
		args = append(args, member)
	}
	k := l.layout.Keys()[shard]
	cmd, err := l.conn.Run(ctx, scripts.Members, []string{k.Msg, k.Due, k.Dead, k.Meta}, args...)
	if err != nil {
		return nil, err
	}
	r := scripts.NewReply(cmd)
	if r.Int(0) == statusReload {
		return nil, l.layout.Refused(r, shard)
	}
	return r, r.Err
}

func (l *lister) placed(ctx context.Context, shard int, r *scripts.Reply) ([]entry, error) {
	entries, err := entriesOf(shard, r.List(5))
	if err != nil {
		return nil, err
	}
	return entries, l.scoreInFlight(ctx, shard, entries)
}
