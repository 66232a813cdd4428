package relay

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/outbox/outboxtest"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// round does what a lane says until it would rest; more says that another batch may be had at once.
func (d *driver) round(t *testing.T) (more bool, err error) {
	t.Helper()
	for {
		a := d.lane.next(time.Now())
		if a.step == nil && a.view == nil {
			return a.more, nil
		}
		if err := d.do(t.Context(), a); err != nil {
			d.lane.failed(a.step, err)
			return false, err
		}
	}
}

// slowLane is a lane, not the first, to which each look at everything is slow, and that makes none in
// the next hour once rest was called.
type slowLane struct {
	*driver
	scene *scene
}

func newSlowLane(s *scene) slowLane {
	s.config.cheapLook, s.config.Batch = time.Nanosecond, 2
	return slowLane{s.relay().driver(1), s}
}

func (l slowLane) rest() { l.lane.sight.whole = time.Now().Add(time.Hour) }

func (l slowLane) work() (more bool) {
	l.scene.t.Helper()
	more, err := l.round(l.scene.t)
	require.NoError(l.scene.t, err)
	return more
}

// TestNewRowsBetweenSlowLooks: what is new is taken at once, and what was committed late
// by the next look at everything.
func TestNewRowsBetweenSlowLooks(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newScene(t, d)
		l := newSlowLane(s)
		tx, commit := s.Begin()
		late := s.InsertInto(tx, insert{ID: "late", DueMs: s.Due(soon)})
		first := s.Insert(insert{ID: "first", DueMs: s.Due(soon)})
		l.work()
		s.RequireStored(first)
		l.rest()
		commit()
		head := s.Insert(insert{ID: "new", DueMs: s.Due(past)})
		cancel := s.Insert(insert{ID: "first", Verb: table.VerbCancel})
		reached := s.Insert(insert{ID: "reached", Queue: "mails", DueMs: s.Due(far)})
		l.work()
		s.RequireStored(head)
		require.Equal(t, "cancelled", s.State(cancel))
		require.Equal(t, "pending", s.State(reached), "not yet within the horizon")
		require.Equal(t, "pending", s.State(late))

		s.redis.with(func() { s.redis.ahead = outboxtest.Far })
		l.lane.sight.marks[0].floor.Number = reached
		l.work()
		s.RequireStored(reached)
		require.Equal(t, "pending", s.State(late))
		l.lane.sight.whole = time.Time{}
		l.work()
		s.RequireStored(late)
	})
}

// TestBatchAfterASlowLook: it begins within seconds after Redis' clock was read, so that is
// read again after a look that took long.
func TestBatchAfterASlowLook(t *testing.T) {
	t.Parallel()
	d := outboxtest.Open(t, schema.Postgres, testenv.Postgres(t))
	var looked time.Time
	s := newScene(t, d.With(t, func(c *table.Config) {
		c.Trace = func(s table.Statement) {
			if strings.Contains(s.Query, "(SELECT load_ms") {
				looked = time.Now()
			}
		}
	}))
	due := s.Due(soon)
	s.Insert(insert{ID: "first", DueMs: due})
	l := newSlowLane(s)
	require.NoError(t, l.do(t.Context(), l.lane.next(time.Now())))
	require.False(t, looked.IsZero())
	a := l.lane.next(time.Now())
	require.False(t, a.outlook.read.Before(looked))
	require.Equal(t, table.Cursor{Ms: due}, a.step.work.After, "a batch is locked from where the look has ended")
}

// TestSlowWayGoesOnward: batch follows batch through a backlog without a look at
// everything in between, and what is new comes first.
func TestSlowWayGoesOnward(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newScene(t, d)
		l := newSlowLane(s)
		for _, id := range []string{"a", "b", "c", "d", "e"} {
			s.Insert(insert{ID: id, DueMs: s.Due(soon)})
		}
		require.True(t, l.work())
		l.rest()
		require.Equal(t, 2, s.Count("status = 1"))
		head := s.Insert(insert{ID: "new", DueMs: s.Due(past)})
		require.True(t, l.work())
		s.RequireStored(head)
		require.Equal(t, 5, s.Count("status = 1"))
		require.False(t, l.work())
		require.Equal(t, 6, s.Count("status = 1"))
		require.False(t, l.work())
	})
}

// TestSlowWayAfterAFailure: nobody knows what is left of a batch that failed, or that
// had to wait.
func TestSlowWayAfterAFailure(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newScene(t, d)
		l := newSlowLane(s)
		s.Insert(insert{ID: "first", DueMs: s.Due(soon)})
		l.work()
		l.rest()
		s.redis.with(func() { s.redis.fail = func(table.Identity) error { return errTest } })
		s.Insert(insert{ID: "waits", DueMs: s.Due(soon)})
		l.work()
		require.True(t, l.lane.sight.next(time.Now().Add(waitingAgain)).whole)
		s.redis.with(func() { s.redis.err = errTest })
		_, err := l.round(t)
		require.Error(t, err)
		require.True(t, l.lane.sight.next(time.Now()).whole)
	})
}

// TestLateCommitIsFoundWithoutPolling: looks at everything are made in time, however seldom
// the relay polls.
func TestLateCommitIsFoundWithoutPolling(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newScene(t, d)
		s.config.cheapLook = time.Nanosecond
		tx, commit := s.Begin()
		late := s.InsertInto(tx, insert{ID: "late", DueMs: s.Due(soon)})
		first := s.Insert(insert{ID: "first", DueMs: s.Due(soon)})
		_, _ = s.start(func(c *Config) { c.Poll = time.Hour })
		s.RequireStored(first)
		commit()
		s.RequireStored(late)
	})
}

// TestCrowdedCourse rests once it has been past more blocked rows than it can track, and not again after each batch.
func TestCrowdedCourse(t *testing.T) {
	t.Parallel()
	c, now := newCourse(defaultBatch), time.Unix(1<<30, 0)
	c.note(now, outcome{settled: 1, crowded: true}, false)
	require.False(t, c.isReady(now))
	now = now.Add(blockedPause)
	require.True(t, c.isReady(now))
	c.note(now, outcome{settled: 1}, false)
	require.True(t, c.isReady(now))
}
