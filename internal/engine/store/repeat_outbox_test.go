package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

func xRow(due time.Time) []store.Row {
	return []store.Row{{Token: rowToken(1), Message: note("x", "the row's"), DueAt: due}}
}

func (s *scene) puts(answer *store.Answer, due time.Time) func() {
	return func() { *answer = s.far.Rows().Put(s.Context(), xRow(due))[0] }
}

// putsWithin is far's fast path, with that much time left.
func (s *scene) putsWithin(answer *store.Answer, left time.Duration) func() {
	return func() { *answer = s.far.Rows().PutWithin(s.Context(), time.Now().Add(left), xRow(rowDue))[0] }
}

func (s *scene) cancelRow() {
	s.Helper()
	answer := s.near.Rows().CancelRow(s.Context(), store.Operation{ID: "x", Token: rowToken(2), Target: rowToken(1)})
	require.NoError(s, answer.Err)
	require.Contains(s, []store.Code{store.Done, store.NotFound}, answer.Code)
}

// loadOutboxScripts is loadScripts for those of the rows.
func (s *scene) loadOutboxScripts() {
	s.Helper()
	answered(s, store.Created, storetest.New(s, s.rdb, 1).Rows().Put(s.Context(), xRow(rowDue))[0])
}

// TestPutRepeated loses the reply of the first run of Put.
func TestPutRepeated(t *testing.T) {
	t.Parallel()
	created := counted("scheduled", 1)
	once := func(s *scene) {
		s.Helper()
		after := dump(s, s.rdb, s.near)
		require.EqualValues(s, 1, after.Counter("scheduled"), "one effect")
		require.Empty(s, after.Attempts, "no mark is needed")
	}
	for name, run := range map[string]func(*scene, *store.Answer){
		"alone": func(s *scene, answer *store.Answer) {
			s.lost(s.puts(answer, farAhead), created, s.nothing)
			answered(s, store.Mine, *answer)
			once(s)
		},
		"alone, connection cut": func(s *scene, answer *store.Answer) {
			s.cut(s.puts(answer, farAhead), created, s.nothing)
			answered(s, store.Mine, *answer)
			once(s)
		},
		"published": func(s *scene, answer *store.Answer) {
			s.lost(s.puts(answer, rowDue), created, s.publish)
			answered(s, store.EndedPublished, *answer)
			once(s)
		},
		"published, and another's": func(s *scene, answer *store.Answer) {
			s.lost(s.puts(answer, rowDue), created, steps(s.publish, s.create(later())))
			answered(s, store.EndedPublished, *answer)
			require.Equal(s, "x", string(s.found(true).Body))
		},
		"cancelled": func(s *scene, answer *store.Answer) {
			s.lost(s.puts(answer, farAhead), created, s.cancel)
			answered(s, store.EndedCancelled, *answer)
			s.found(false)
		},
		"rescheduled by the row, and published": func(s *scene, answer *store.Answer) {
			s.lost(s.puts(answer, farAhead), created, steps(func() {
				answered(s, store.Done, s.near.Rows().RescheduleRow(s.Context(), store.Operation{ID: "x", Token: rowToken(2), Target: rowToken(1)}, rowDue))
			}, s.publish))
			answered(s, store.EndedPublished, *answer)
			once(s)
		},
		"not repeated within a deadline": func(s *scene, answer *store.Answer) {
			s.cut(s.putsWithin(answer, time.Minute), created, s.nothing)
			require.ErrorIs(s, answer.Err, store.ErrUnknown)
			once(s)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			s.loadOutboxScripts()
			run(s, new(store.Answer))
			sound(t, s.rdb, s.near)
		})
	}
}

// TestPutLate delivers the first run of Put when it is over.
func TestPutLate(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(*scene, *store.Answer){
		"after the second": func(s *scene, answer *store.Answer) {
			s.late(s.puts(answer, farAhead), s.nothing, s.nothing)
			answered(s, store.Created, *answer)
		},
		"after a cancel": func(s *scene, answer *store.Answer) {
			s.late(s.puts(answer, farAhead), s.cancelRow, s.nothing)
			answered(s, store.EndedCancelled, *answer)
		},
		"after its deadline": func(s *scene, answer *store.Answer) {
			s.late(s.putsWithin(answer, 300*time.Millisecond), s.nothing, func() {
				require.ErrorIs(s, answer.Err, store.ErrUnknown)
				s.found(false)
			})
			s.found(false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			s.loadOutboxScripts()
			run(s, new(store.Answer))
			sound(t, s.rdb, s.near)
		})
	}
}

// TestPutFastPathLate delivers a fast path's run within its deadline, but after
// the row's cancel that found nothing: only the tombstone stops it.
func TestPutFastPathLate(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.loadOutboxScripts()
	s.ready()
	s.proxy.Blackhole(true)
	var answer store.Answer
	done := inBackground(s.putsWithin(&answer, time.Minute))
	require.Eventually(t, func() bool { return s.farRdb.PoolStats().IdleConns == 0 }, soon, time.Millisecond, "the run is under way")
	s.cancelRow()
	s.proxy.Blackhole(false)
	<-done
	answered(t, store.EndedCancelled, answer)
	s.found(false)
}

// TestPutWithinAfterItsDeadline sends nothing.
func TestPutWithinAfterItsDeadline(t *testing.T) {
	t.Parallel()
	s := newOutboxScene(t)
	answer := s.q.Rows().PutWithin(t.Context(), time.Now().Add(-time.Second), xRow(rowDue))[0]
	require.ErrorIs(t, answer.Err, store.ErrUnavailable)
	require.Empty(t, sound(t, s.rdb, s.q).Msg)
}

// TestCancelRowRepeated loses the reply of an operation's first run.
func TestCancelRowRepeated(t *testing.T) {
	t.Parallel()
	for name, there := range map[string]bool{"there": true, "not there": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			s.loadOutboxScripts()
			if there {
				answered(t, store.Created, s.near.Rows().Put(t.Context(), xRow(rowDue))[0])
			}
			var answer store.Answer
			call := func() {
				answer = s.far.Rows().CancelRow(t.Context(), store.Operation{ID: "x", Token: rowToken(2), Target: rowToken(1)})
			}
			s.lost(call, func(d *storetest.Shard) bool { return len(d.Gone) > 0 }, s.nothing)
			answered(t, map[bool]store.Code{true: store.Done, false: store.NotFound}[there], answer)
			answered(t, store.EndedCancelled, s.near.Rows().Put(t.Context(), xRow(rowDue))[0])
		})
	}
}
