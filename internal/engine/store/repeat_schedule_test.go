package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

const markedOnce = "0 1 1 0"

// TestScheduleRepeated loses the reply of a schedule's first run.
// It checks I10.
func TestScheduleRepeated(t *testing.T) {
	t.Parallel()
	created := counted("scheduled", 1)
	cases(t, map[string]func(*scene){
		"alone": func(s *scene) {
			var answer store.Answer
			s.lost(s.schedules(&answer, later()), created, s.nothing)
			answered(s, store.Created, answer)
			after := dump(s, s.rdb, s.near)
			require.EqualValues(s, 1, after.Counter("scheduled"), "one effect")
			require.Equal(s, after.Due["x"], answer.DueAt.UnixMilli())
			require.Empty(s, after.Attempts, "its first life goes on: not marked")
		},
		"alone, connection cut": func(s *scene) {
			var answer store.Answer
			s.cut(s.schedules(&answer, later()), created, s.nothing)
			answered(s, store.Created, answer)
			require.EqualValues(s, 1, dump(s, s.rdb, s.near).Counter("scheduled"))
		},
		"cancelled": func(s *scene) {
			var answer store.Answer
			s.lost(s.schedules(&answer, later()), created, s.cancel)
			answered(s, store.Created, answer)
			s.found(false)
			require.EqualValues(s, 1, dump(s, s.rdb, s.near).Counter("scheduled"))
		},
		"cancelled, and another's": func(s *scene) {
			var answer store.Answer
			s.lost(s.schedules(&answer, later()), created, steps(s.cancel, s.create(past())))
			answered(s, store.Created, answer)
			require.Equal(s, past().Ms, s.found(true).DueAt.UnixMilli(), "the other's stays")
		},
		"published": func(s *scene) {
			var answer store.Answer
			s.lost(s.schedules(&answer, past()), created, s.publish)
			answered(s, store.Created, answer)
			after := dump(s, s.rdb, s.near)
			require.EqualValues(s, 2, after.Counter("scheduled"), "no trace is kept after the acknowledgement")
			require.Equal(s, markedOnce, after.Attempts["x"])
			require.Equal(s, store.DoneMaybePublished, cancel(s, s.near, "x"), "and so a cancel says it")
		},
		"published, and another's": func(s *scene) {
			var answer store.Answer
			s.lost(s.schedules(&answer, past()), created, steps(s.publish, s.nextMillisecond, s.create(later())))
			require.ErrorIs(s, answer.Err, store.ErrUnknown)
			require.Empty(s, dump(s, s.rdb, s.near).Attempts, "the other's is not touched")
		},
		"in flight": func(s *scene) {
			var answer store.Answer
			s.lost(s.schedules(&answer, past()), created, s.claim)
			answered(s, store.Created, answer)
			require.Equal(s, past().Ms, answer.DueAt.UnixMilli())
			require.Equal(s, store.InFlight, s.found(true).Code)
		},
		"retried": func(s *scene) {
			var answer store.Answer
			s.lost(s.schedules(&answer, past()), created, func() { s.bridge.finish(retried) })
			answered(s, store.Created, answer)
			after := dump(s, s.rdb, s.near)
			require.Equal(s, message.NewHistory(retried.Attempts, time.UnixMilli(past().Ms)).String(), after.Attempts["x"])
			require.EqualValues(s, 1, after.Counter("scheduled"))
		},
		"dead": func(s *scene) {
			var answer store.Answer
			s.lost(s.schedules(&answer, past()), created, s.bury)
			answered(s, store.Created, answer)
			require.Equal(s, store.Dead, s.found(true).Code)
		},
		"dead, and cancelled": func(s *scene) {
			var answer store.Answer
			s.lost(s.schedules(&answer, past()), created, steps(s.bury, s.cancel))
			answered(s, store.Created, answer)
			s.found(false)
		},
		"dead, and redriven": func(s *scene) {
			var answer store.Answer
			s.lost(s.schedules(&answer, past()), created, steps(s.bury, s.redrive))
			answered(s, store.Created, answer)
			require.Equal(s, store.Waiting, s.found(true).Code)
		},
		"dead, and replaced, and published": func(s *scene) {
			var answer store.Answer
			s.lost(s.schedules(&answer, past()), created, steps(s.bury, s.replace(past()), s.publish))
			answered(s, store.Created, answer)
			s.found(false)
		},
		"replaced": func(s *scene) {
			var answer store.Answer
			s.lost(s.schedules(&answer, past()), created, s.replace(later()))
			answered(s, store.Created, answer)
			require.Equal(s, "near's", string(s.found(true).Body))
		},
		"replaced, and published": func(s *scene) {
			var answer store.Answer
			s.lost(s.schedules(&answer, past()), created, steps(s.replace(past()), s.publish))
			answered(s, store.Created, answer)
			s.found(false)
		},
		"rescheduled, and published": func(s *scene) {
			var answer store.Answer
			s.lost(s.schedules(&answer, later()), created, steps(s.reschedule(past()), s.publish))
			answered(s, store.Created, answer)
			s.found(false)
		},
		"rescheduled": func(s *scene) {
			var answer store.Answer
			s.lost(s.schedules(&answer, later()), created, s.reschedule(past()))
			answered(s, store.Created, answer)
			require.Equal(s, past().Ms, s.found(true).DueAt.UnixMilli())
		},
		"a batch": func(s *scene) {
			var answers []store.Answer
			call := func() {
				answers = s.far.Producer().Schedule(s.Context(), requests(later(), "x", "y", "y", "z"), false, store.Durability{})
			}
			s.lost(call, counted("scheduled", 3), s.cancel)
			answered(s, store.Created, answers[0])
			answered(s, store.Created, answers[1])
			answered(s, store.Waiting, answers[2])
			answered(s, store.Created, answers[3])
			require.EqualValues(s, 3, dump(s, s.rdb, s.near).Counter("scheduled"))
			s.found(false)
		},
	})
}

// TestScheduleTaken loses the reply that the identity is another's, who came
// before the call.
func TestScheduleTaken(t *testing.T) {
	t.Parallel()
	before := func(s *scene, between func()) store.Answer {
		s.create(past())()
		s.nextMillisecond()
		var answer store.Answer
		evals := commandCalls(s, s.rdb, "evalsha")
		s.lost(s.schedules(&answer, later()), func(*storetest.Shard) bool {
			return commandCalls(s, s.rdb, "evalsha") > evals+1
		}, between)
		return answer
	}
	for name, run := range map[string]func(*scene){
		"waiting":   func(s *scene) { answered(s, store.Waiting, before(s, s.nothing)) },
		"in flight": func(s *scene) { answered(s, store.InFlight, before(s, s.claim)) },
		"dead":      func(s *scene) { answered(s, store.Dead, before(s, s.bury)) },
		"published": func(s *scene) {
			// Whether the first run had created it cannot be told: it is created, marked.
			answered(s, store.Created, before(s, s.publish))
			require.Equal(s, markedOnce, dump(s, s.rdb, s.near).Attempts["x"])
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSceneOn(t, testenvPrivate(t))
			run(s)
			sound(t, s.rdb, s.near)
		})
	}
}

// TestScheduleLate delivers a schedule's first run after the second.
func TestScheduleLate(t *testing.T) {
	t.Parallel()
	cases(t, map[string]func(*scene){
		"alone": func(s *scene) {
			var answer store.Answer
			s.late(s.schedules(&answer, later()), s.nothing, s.nothing)
			answered(s, store.Created, answer)
			after := dump(s, s.rdb, s.near)
			require.Equal(s, markedOnce, after.Attempts["x"], "created by a second run: marked")
			require.EqualValues(s, 1, after.Counter("scheduled"))
		},
		"published": func(s *scene) {
			var answer store.Answer
			s.late(s.schedules(&answer, past()), s.nothing, s.publish)
			answered(s, store.Created, answer)
			s.found(false)
		},
		"cancelled": func(s *scene) {
			var answer store.Answer
			s.late(s.schedules(&answer, later()), s.nothing, func() {
				require.Equal(s, store.DoneMaybePublished, cancel(s, s.near, "x"))
			})
			answered(s, store.Created, answer)
			s.found(false)
		},
		"another's before": func(s *scene) {
			var answer store.Answer
			s.late(s.schedules(&answer, past()), steps(s.nextMillisecond, s.create(later())), s.nothing)
			require.ErrorIs(s, answer.Err, store.ErrUnknown)
		},
		"another's after": func(s *scene) {
			var answer store.Answer
			s.late(s.schedules(&answer, past()), s.nothing, steps(s.publish, s.create(later())))
			answered(s, store.Created, answer)
			require.Equal(s, store.Waiting, s.found(true).Code)
		},
	})
}

// replace puts near's message in the place of another.
func (s *scene) replace(when store.When) func() {
	return func() {
		s.Helper()
		r := []store.Request{{Message: note("x", "near's"), When: when}}
		answered(s, store.Replaced, s.near.Producer().Schedule(s.Context(), r, true, store.Durability{})[0])
	}
}

// TestReplaceRepeated loses the reply of a replace's first run.
func TestReplaceRepeated(t *testing.T) {
	t.Parallel()
	replaced := counted("replaced", 1)
	cases(t, map[string]func(*scene){
		"alone": func(s *scene) {
			s.create(past())()
			var answer store.Answer
			s.lost(s.replaces(&answer, later()), replaced, s.nothing)
			require.NoError(s, answer.Err)
			require.Contains(s, []store.Code{store.Created, store.Replaced}, answer.Code)
			after := dump(s, s.rdb, s.near)
			require.EqualValues(s, 1, after.Counter("replaced"))
			require.Equal(s, after.Due["x"], answer.DueAt.UnixMilli())
			require.Empty(s, after.Attempts)
		},
		"replaced by another": func(s *scene) {
			s.create(past())()
			var answer store.Answer
			s.lost(s.replaces(&answer, later()), replaced, s.replace(later()))
			require.NoError(s, answer.Err, "its token tells that it was there")
			require.Equal(s, "near's", string(s.found(true).Body), "an older version does not cover a newer one")
		},
		"cancelled": func(s *scene) {
			s.create(past())()
			var answer store.Answer
			s.lost(s.replaces(&answer, later()), replaced, s.cancel)
			answered(s, store.Created, answer)
			s.found(false)
		},
		"published": func(s *scene) {
			s.create(later())()
			var answer store.Answer
			s.lost(s.replaces(&answer, past()), replaced, s.publish)
			answered(s, store.Created, answer)
			require.Equal(s, markedOnce, dump(s, s.rdb, s.near).Attempts["x"])
		},
		"published, and another's": func(s *scene) {
			s.create(later())()
			var answer store.Answer
			s.lost(s.replaces(&answer, past()), replaced, steps(s.publish, s.create(later())))
			require.ErrorIs(s, answer.Err, store.ErrUnknown)
			require.Equal(s, "x", string(s.found(true).Body))
		},
		"in flight": func(s *scene) {
			s.create(later())()
			var answer store.Answer
			s.lost(s.replaces(&answer, past()), replaced, s.claim)
			require.NoError(s, answer.Err)
			require.Equal(s, store.InFlight, s.found(true).Code)
		},
		"in flight, after a delay": func(s *scene) {
			s.create(later())()
			var answer store.Answer
			var claimed time.Time
			s.lost(s.replaces(&answer, store.When{Relative: true}), replaced, steps(s.nextMillisecond, s.claim, func() { claimed = s.rdb.Time(s.Context()).Val() }))
			require.NoError(s, answer.Err)
			require.Equal(s, store.InFlight, s.found(true).Code)
			require.False(s, answer.DueAt.After(claimed), "due at %s, and claimed by %s", answer.DueAt, claimed)
		},
		"in flight, put off": func(s *scene) {
			var answer store.Answer
			var claimed time.Time
			put := func() {
				m := note("x", "far's")
				var err error
				m.Headers, err = message.WithFirst(m.Headers, true)
				require.NoError(s, err)
				r := []store.Request{{Message: m, When: store.When{Relative: true, Ms: 2, MaxWait: 1}}}
				answer = s.far.Producer().Schedule(s.Context(), r, true, store.Durability{})[0]
			}
			s.lost(put, counted("scheduled", 1), steps(s.nextMillisecond, s.nextMillisecond, s.claim, func() { claimed = s.rdb.Time(s.Context()).Val() }))
			answered(s, store.Created, answer)
			require.Equal(s, store.InFlight, s.found(true).Code)
			require.WithinRange(s, answer.DueAt, claimed.Add(-time.Minute), claimed)
		},
		"dead": func(s *scene) {
			s.create(later())()
			var answer store.Answer
			s.lost(s.replaces(&answer, past()), replaced, s.bury)
			require.NoError(s, answer.Err)
			require.Equal(s, store.Dead, s.found(true).Code)
		},
	})
}

// TestReplaceLate delivers a replace's first run after the second.
func TestReplaceLate(t *testing.T) {
	t.Parallel()
	cases(t, map[string]func(*scene){
		"of another's": func(s *scene) {
			s.create(past())()
			var answer store.Answer
			s.late(s.replaces(&answer, later()), s.nothing, s.nothing)
			require.ErrorIs(s, answer.Err, store.ErrUnknown)
			require.Equal(s, "x", string(s.found(true).Body), "a second run that meets another token changes nothing")
		},
		"of nothing": func(s *scene) {
			var answer store.Answer
			s.late(s.replaces(&answer, past()), s.nothing, steps(s.publish, s.create(later())))
			answered(s, store.Created, answer)
			require.Equal(s, "x", string(s.found(true).Body))
		},
	})
}
