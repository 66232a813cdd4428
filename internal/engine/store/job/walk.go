package job

import (
	"context"
	"slices"

	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

// part is a part of a job's walk: a state as it is listed, or one of these.
type part string

const (
	// walkTag goes by the index of the tag, where a message has one place in any state.
	walkTag part = "tag"
	// walkMembers goes by the names of what waits or is in flight, see [Run].
	walkMembers part = "members"
)

// mostMoves is how often in a row all that were looked at by name may have moved.
const mostMoves = 5

// walk are the parts of the walk of a job, in their order.
func (s *Spec) walk() []part {
	state := s.Filter.State
	if s.isOfDead() {
		state = inspect.StateDead
	}
	switch {
	case s.Filter.Tag != "":
		return []part{walkTag}
	case s.DryRun && state == "":
		return []part{part(inspect.StateScheduled), part(inspect.StateParked), part(inspect.StateInFlight), part(inspect.StateDead)}
	case s.DryRun || state == inspect.StateDead: // Who dies later is listed later.
		return []part{part(state)}
	case state == inspect.StateInFlight:
		return []part{walkMembers}
	case state != "":
		return []part{part(state), walkMembers}
	default: // Who is met by its name and then dies was in flight, so it is looked at again.
		return []part{part(inspect.StateScheduled), part(inspect.StateParked), walkMembers, part(inspect.StateDead)}
	}
}

// isOfDead reports whether the job is for dead letters only.
func (s *Spec) isOfDead() bool {
	f := &s.Filter
	return f.State == inspect.StateDead || f.Reason != "" || f.ReasonContains != "" || s.Verb == Redrive || s.Verb == Purge
}

// next are messages that the job may mean, at most so many.
func (r *Run) next(ctx context.Context, next *record, most int) ([]inspect.Listed, error) {
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
	request := inspect.ListRequest{Filter: next.Spec.Filter, Limit: most, After: next.Cursor}
	if at != walkTag {
		request.State = inspect.State(at)
	}
	page, err := r.jobs.admin.List(ctx, request)
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
func (r *Run) named(ctx context.Context, next *record, most int) ([]inspect.Listed, error) {
	names := next.Rest[:min(most, len(next.Rest))]
	found, moved, err := r.jobs.admin.Named(ctx, &next.Spec.Filter, names)
	if err != nil {
		return nil, err
	}
	if r.moves++; len(moved) < len(names) {
		r.moves = 0
	} else if r.moves > mostMoves {
		moved = nil // They have a place and no text: others tell of it.
	}
	next.Rest = append(next.Rest[len(names):], moved...)
	still := map[string]bool{}
	for _, member := range moved {
		still[member] = true
	}
	for i := range found {
		member := found[i].Member()
		still[member] = still[member] || next.means(&found[i])
	}
	next.Left = slices.DeleteFunc(next.Left, func(member string) bool { return !still[member] && slices.Contains(names, member) })
	return found, nil
}

// members are those of the next pages of names, until there are some or enough was looked
// at. What is more than the step may have is met by its name then.
func (r *Run) members(ctx context.Context, next *record, most int) (found []inspect.Listed, err error) {
	if next.Scan == nil {
		next.Scan = &inspect.ScanPlace{Cursor: "0"}
	}
	if r.scan == nil {
		r.scan = inspect.NewScan(r.jobs.queue, next.Spec.Filter, next.Mark)
	}
	for looked := 0; next.Scan != nil && len(found) < most && looked < inspect.MaxLooked; {
		page, err := r.scan.Next(ctx, *next.Scan)
		if err != nil {
			return nil, err
		}
		looked += page.Looked
		next.Rest = append(next.Rest, page.Moved...)
		for i := range page.Messages {
			if m := &page.Messages[i]; next.means(m) {
				found = append(found, *m)
			}
		}
		if next.Scan = &page.After; page.IsLast {
			next.Part, next.Scan = next.Part+1, nil
		}
	}
	if len(found) > most {
		for i := range found[most:] {
			next.Rest = append(next.Rest, found[most+i].Member())
		}
		found = found[:most]
	}
	return found, nil
}
