package recurring

import (
	"slices"
	"time"
)

const (
	// horizon is how far ahead firings are scheduled, so that nobody needs to plan for that long. The next
	// one is scheduled at any rate, so that it can be looked at, moved or cancelled.
	horizon = 30 * time.Second
	// grace is how late a firing may be planned before it counts as missed.
	grace = time.Minute
	// mostWalked bounds how many missed firings one plan goes through.
	mostWalked = 50_000
	// mostPending bounds the firings that wait to be scheduled, and mostStale those that are ended. There are more
	// only if a shard is away for long, or Redis' clock was set back.
	mostPending, mostStale = 1000, 1000
	// remembered is how long a call that schedules a firing has one effect, and sure how long nobody
	// doubts it, whatever the clocks do.
	remembered = 24 * time.Hour
	sure       = remembered / 2
	// clockMargin is how far the clocks of shards may differ.
	clockMargin = 5 * time.Second
)

// plan decides on the firings that are next by now, and reports whether there are any. It is pure: two planners
// with one record and one clock decide the same.
func (r *Record) plan(now time.Time) (isChanged bool, err error) {
	if !r.Paused.IsZero() || r.IsDeleted || r.Stale != nil {
		return false, nil
	}
	table, err := r.timetable()
	if err != nil {
		return false, err
	}
	isChanged = r.forget(now)
	var missed []int64 // the latest
	walked := 0
	for ; walked < mostWalked; walked++ {
		at := table.next(r.Planned)
		if at.IsZero() || at.After(now.Add(horizon)) && r.Planned.After(now) || len(r.Pending) >= mostPending {
			break
		}
		switch {
		case slices.Contains(r.Spent, at.Unix()): // It has come.
		case at.Before(now.Add(-grace)):
			if missed = append(missed, at.Unix()); len(missed) > r.most() {
				missed, r.Skipped = missed[1:], r.Skipped+1
			}
		default:
			r.decide(append(missed, at.Unix()), now)
			missed = nil
		}
		r.Planned = at
	}
	switch {
	case walked == mostWalked && len(missed) > 0: // Later ones may take their places.
		r.Planned = time.Unix(missed[0]-1, 0).UTC()
	default:
		r.decide(missed, now)
	}
	r.Spent = r.spend(nil, now)
	return isChanged || walked > 0, nil
}

// spend returns what is spent with these firings, without those that are over: no revision fires before it begins. Those that are only
// planned stay, because the next revision plans them again.
func (r *Record) spend(firings []int64, now time.Time) []int64 {
	over := now.Add(-clockMargin).Unix()
	return slices.DeleteFunc(slices.Concat(r.Spent, firings), func(at int64) bool { return at <= over })
}

// most is how many missed firings are made up for.
func (r *Record) most() int {
	switch r.Missed {
	case Once:
		return 1
	case CatchUp:
		return r.CatchUp
	case Skip:
	}
	return 0
}

func (r *Record) decide(firings []int64, now time.Time) {
	if len(r.Pending) == 0 && len(firings) > 0 {
		r.DecidedAt = now
	}
	r.Pending = append(slices.Clip(r.Pending), firings...)
}

// forget leaves out firings of which nobody can tell any longer whether they were scheduled: better none than two.
func (r *Record) forget(now time.Time) bool {
	if len(r.Pending) == 0 || now.Sub(r.DecidedAt) < sure {
		return false
	}
	before := len(r.Pending)
	r.Pending = slices.DeleteFunc(slices.Clone(r.Pending), func(at int64) bool { return at < now.Unix() })
	gone := before - len(r.Pending)
	r.Skipped += int64(gone)
	return gone > 0
}

// end makes the record one of another revision, which must first end the firings of this one that are not due yet.
func (r *Record) end(now time.Time) error {
	firings := slices.Clone(r.Pending)
	if r.Paused.IsZero() {
		table, err := r.timetable()
		if err != nil {
			return err
		}
		since := now.Add(-clockMargin)
		for at := table.next(since.Add(-r.Jitter)); !at.IsZero() && !at.After(r.Planned) && len(firings) < mostStale; at = table.next(at) {
			if r.dueMs(at.Unix()) > since.UnixMilli() && at.After(r.SetAt) {
				firings = append(firings, at.Unix())
			}
		}
		slices.Sort(firings)
		firings = slices.Compact(firings)
	}
	if r.Stale = nil; len(firings) > 0 {
		r.Stale = &Stale{r.Revision, r.Key, firings}
	}
	r.newRevision(now)
	return nil
}

// Next returns the next firing after an instant; zero if there is none, because of a pause or of until.
func (r *Record) Next(after time.Time) time.Time {
	table, err := r.timetable()
	if err != nil || !r.Paused.IsZero() || r.IsDeleted {
		return time.Time{}
	}
	return table.next(after)
}
