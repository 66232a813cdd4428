package store_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// TestCancelRepeatedAcrossLayouts: a further run of a cancel finds what the first one has done,
// though the home where it ran is the last by now, and in another one the next message of the id is.
func TestCancelRepeatedAcrossLayouts(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	shards := 2
	for layout.Home("", "x", shards) == 0 {
		shards++
	}
	t.Cleanup(func() { storetest.Remove(context.WithoutCancel(t.Context()), s.rdb, s.near.Name(), shards) })
	change := func(to int) {
		_, err := s.near.Layouts().SetShards(t.Context(), to)
		require.NoError(t, err)
	}
	s.create(later())()
	change(shards)
	var answer store.Answer
	s.lost(s.cancels(&answer), counted("cancelled", 1), func() {
		s.create(later())()
		change(1)
	})
	answered(t, store.Done, answer)
	_, isThere, err := inspect.Get(t.Context(), s.near, "x", "")
	require.NoError(t, err)
	require.True(t, isThere, "the next message of the id")
}

// TestCancelRepeated loses the reply of a cancel's first run.
func TestCancelRepeated(t *testing.T) {
	t.Parallel()
	cancelled := counted("cancelled", 1)
	cases(t, map[string]func(*scene){
		"alone": func(s *scene) {
			s.create(later())()
			var answer store.Answer
			s.lost(s.cancels(&answer), cancelled, s.nothing)
			answered(s, store.Done, answer)
			require.EqualValues(s, 1, dump(s, s.rdb, s.near).Counter("cancelled"))
		},
		"alone, connection cut": func(s *scene) {
			s.create(later())()
			var answer store.Answer
			s.cut(s.cancels(&answer), cancelled, s.nothing)
			answered(s, store.Done, answer)
		},
		"marked": func(s *scene) {
			s.create(past())()
			s.mark()
			var answer store.Answer
			s.lost(s.cancels(&answer), cancelled, s.nothing)
			answered(s, store.DoneMaybePublished, answer)
		},
		"another's since": func(s *scene) {
			s.create(later())()
			var answer store.Answer
			s.lost(s.cancels(&answer), cancelled, s.create(later()))
			answered(s, store.Done, answer)
			s.found(true)
		},
		"another's since, in flight": func(s *scene) {
			s.create(later())()
			var answer store.Answer
			s.lost(s.cancels(&answer), cancelled, steps(s.create(past()), s.claim))
			answered(s, store.Done, answer)
			s.found(true)
		},
		"of a dead one": func(s *scene) {
			s.create(past())()
			s.bury()
			var answer store.Answer
			s.lost(s.cancels(&answer), cancelled, s.nothing)
			answered(s, store.Done, answer)
			s.found(false)
		},
	})
}

// TestCancelLate delivers a cancel's first run after the second.
func TestCancelLate(t *testing.T) {
	t.Parallel()
	cases(t, map[string]func(*scene){
		"another's since": func(s *scene) {
			s.create(later())()
			var answer store.Answer
			s.late(s.cancels(&answer), s.nothing, s.create(later()))
			answered(s, store.Done, answer)
			s.found(true)
		},
		"published before": func(s *scene) {
			s.create(past())()
			var answer store.Answer
			s.late(s.cancels(&answer), s.publish, s.create(later()))
			answered(s, store.NotFound, answer)
			s.found(true)
		},
		"in flight, released since": func(s *scene) {
			s.create(past())()
			claim := s.bridge.claim(1)
			var answer store.Answer
			s.late(s.cancels(&answer), s.nothing, func() { s.bridge.settle(claim, released) })
			answered(s, store.InFlight, answer)
			s.found(true)
		},
		"dead": func(s *scene) {
			s.create(past())()
			var answer store.Answer
			s.late(s.cancels(&answer), s.bury, s.create(later()))
			answered(s, store.Done, answer)
		},
	})
}

// TestRescheduleRepeated loses the reply of a reschedule's first run.
func TestRescheduleRepeated(t *testing.T) {
	t.Parallel()
	moved := counted("rescheduled", 1)
	cases(t, map[string]func(*scene){
		"alone": func(s *scene) {
			s.create(past())()
			var answer store.Answer
			s.lost(s.reschedules(&answer, later()), moved, s.nothing)
			answered(s, store.Done, answer)
			after := dump(s, s.rdb, s.near)
			require.Equal(s, after.Due["x"], answer.DueAt.UnixMilli(), "the first run's due time")
			require.EqualValues(s, 1, after.Counter("rescheduled"))
		},
		"marked": func(s *scene) {
			s.create(past())()
			s.mark()
			var answer store.Answer
			s.lost(s.reschedules(&answer, later()), moved, s.nothing)
			answered(s, store.DoneMaybePublished, answer)
		},
		"cancelled": func(s *scene) {
			s.create(past())()
			var answer store.Answer
			s.lost(s.reschedules(&answer, later()), moved, s.cancel)
			answered(s, store.Done, answer)
			s.found(false)
		},
		"cancelled, and another's": func(s *scene) {
			s.create(past())()
			var answer store.Answer
			s.lost(s.reschedules(&answer, later()), moved, steps(s.cancel, s.create(past())))
			answered(s, store.Done, answer)
			require.Equal(s, past().Ms, s.found(true).DueAt.UnixMilli())
		},
		"moved by another": func(s *scene) {
			s.create(past())()
			var answer store.Answer
			s.lost(s.reschedules(&answer, later()), moved, s.reschedule(past()))
			answered(s, store.Done, answer)
			require.Equal(s, past().Ms, s.found(true).DueAt.UnixMilli(), "the other's due time stays")
		},
		"replaced by another": func(s *scene) {
			s.create(past())()
			var answer store.Answer
			s.lost(s.reschedules(&answer, later()), moved, s.replace(past()))
			answered(s, store.Done, answer)
			require.Equal(s, past().Ms, s.found(true).DueAt.UnixMilli(), "the other's due time stays")
		},
		"published": func(s *scene) {
			s.create(later())()
			var answer store.Answer
			s.lost(s.reschedules(&answer, past()), moved, s.publish)
			answered(s, store.Done, answer)
			s.found(false)
		},
		"in flight": func(s *scene) {
			s.create(later())()
			var answer store.Answer
			s.lost(s.reschedules(&answer, past()), moved, s.claim)
			answered(s, store.Done, answer)
		},
		"of a dead one": func(s *scene) {
			s.create(past())()
			s.bury()
			var answer store.Answer
			s.lost(s.reschedules(&answer, later()), moved, s.nothing)
			answered(s, store.Done, answer)
			require.EqualValues(s, 1, dump(s, s.rdb, s.near).Counter("redriven"))
		},
		"of a dead one, dead again": func(s *scene) {
			s.create(past())()
			s.bury()
			var answer store.Answer
			s.lost(s.reschedules(&answer, past()), moved, s.bury)
			answered(s, store.Done, answer)
			require.Equal(s, store.Dead, s.found(true).Code)
		},
	})
}

// TestRescheduleLate delivers a reschedule's first run after the second.
func TestRescheduleLate(t *testing.T) {
	t.Parallel()
	cases(t, map[string]func(*scene){
		"moved by another since": func(s *scene) {
			s.create(past())()
			var answer store.Answer
			s.late(s.reschedules(&answer, later()), s.nothing, s.reschedule(past()))
			answered(s, store.Done, answer)
			require.Equal(s, past().Ms, s.found(true).DueAt.UnixMilli())
		},
		"published before": func(s *scene) {
			s.create(past())()
			var answer store.Answer
			s.late(s.reschedules(&answer, later()), s.publish, s.create(past()))
			answered(s, store.NotFound, answer)
			require.Equal(s, past().Ms, s.found(true).DueAt.UnixMilli())
		},
		"in flight, released since": func(s *scene) {
			s.create(past())()
			claim := s.bridge.claim(1)
			var answer store.Answer
			s.late(s.reschedules(&answer, later()), s.nothing, func() { s.bridge.settle(claim, released) })
			answered(s, store.InFlight, answer)
			require.Equal(s, past().Ms, s.found(true).DueAt.UnixMilli())
		},
	})
}
