package recurring

import (
	"context"
	"errors"
	"slices"

	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// Tally counts what a step has done.
type Tally struct {
	// Scheduled firings are messages now, Skipped ones were missed and left out.
	Scheduled, Skipped int64
}

// Step does for a schedule what is to be done by now: it ends stale firings, decides on those that are next, and schedules
// them. Anybody may do it, at any time, from any record that was read, and break off anywhere: a step that is made again, late or
// by two has no further effect. If somebody else has changed the record, it ends early, without an error.
func (s *Schedules) Step(ctx context.Context, kept Kept) (done Tally, err error) {
	if kept.Err != nil {
		return done, kept.Err
	}
	for _, part := range []func(context.Context, Kept) (Kept, error){s.finish, s.decide, s.schedule} {
		next, err := part(ctx, kept)
		if errors.Is(err, errMeanwhile) {
			return done, nil
		}
		done.Scheduled += max(0, next.Scheduled-kept.Scheduled)
		done.Skipped += max(0, next.Skipped-kept.Skipped)
		if errors.Is(err, store.ErrNotDurable) {
			err = nil // It is done, and who has made the change was told.
		}
		if kept = next; err != nil || kept.text == "" {
			return done, err
		}
	}
	return done, nil
}

// decide writes down which firings are next, before any is scheduled.
func (s *Schedules) decide(ctx context.Context, kept Kept) (Kept, error) {
	next := kept.Record
	isChanged, err := next.plan(s.queue.Now())
	if err != nil || !isChanged {
		return kept, err
	}
	return s.put(ctx, kept, "", &next, false, store.Durability{})
}

// schedule makes messages of the pending firings.
func (s *Schedules) schedule(ctx context.Context, kept Kept) (Kept, error) {
	if len(kept.Pending) == 0 {
		return kept, nil
	}
	requests := make([]store.Request, len(kept.Pending))
	for i, at := range kept.Pending {
		m := kept.message(at)
		requests[i] = store.Request{Message: m, When: store.When{Ms: kept.dueMs(at)}, Earlier: named(s.call(m.ID, m.Key, kept.Revision, at))}
	}
	next := kept.Record
	next.Pending = nil
	var failed error
	for i, a := range s.queue.Producer().Schedule(ctx, requests, false, s.durable) {
		switch {
		case a.Err != nil || a.NotDurable:
			failed = errors.Join(a.Err, a.Missing)
			next.Pending = append(next.Pending, kept.Pending[i])
		default: // Also where somebody else's message has the id.
			next.Scheduled++
		}
	}
	if slices.Equal(next.Pending, kept.Pending) {
		return kept, failed
	}
	kept, err := s.put(ctx, kept, "", &next, false, store.Durability{})
	if err != nil {
		failed = err
	}
	return kept, failed
}
