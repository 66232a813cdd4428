package relay

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/outbox/outboxtest"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// TestTakeIdentity: the consumer of compensation messages and the relay take the
// same locks for the same write.
func TestTakeIdentity(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newReal(t, d)
		relay, err := New(s.config)
		require.NoError(t, err)
		take := func(id string) TakeResult {
			taken, err := relay.TakeIdentity(t.Context(), s.Orders, "k", id)
			require.NoError(t, err)
			return taken
		}
		require.Equal(t, TakeAbsent, take("a"))
		a := s.Insert(insert{Key: "k", ID: "a", DueMs: s.Due(soon), Body: strings.Repeat("x", 100<<10)})
		tx, commit := s.Begin()
		d.ExecIn(t, tx, "SELECT id FROM {t} WHERE id = ? FOR UPDATE", a)
		require.Equal(t, TakeLocked, take("a"))
		commit()
		require.Equal(t, TakeDone, take("a"))
		s.RequireStored(a)
		require.Len(t, s.Find("k", "a").Body, 100<<10)
		require.Equal(t, TakeAbsent, take("a"), "delivered again")

		far := s.Insert(insert{Key: "k", ID: "far", DueMs: s.Due(far)})
		require.Equal(t, TakeDone, take("far"), "the relay loads it when it is time")
		row, _ := s.Read(far)
		require.Equal(t, table.StatePending, row.State)
		due := s.Due(soon)
		move := s.Insert(insert{Key: "k", ID: "far", Verb: table.VerbReschedule, DueMs: due})
		require.Equal(t, TakeDone, take("far"))
		s.RequireState(move, table.StateStored)
		s.RequireStored(far)
		require.Equal(t, due, s.Find("k", "far").DueAt.UnixMilli())

		gone := s.Insert(insert{Key: "k", ID: "gone", DueMs: s.Due(soon)})
		stop := s.Insert(insert{Key: "k", ID: "gone", Verb: table.VerbCancel})
		require.Equal(t, TakeDone, take("gone"))
		s.RequireState(stop, table.StateCancelled)
		s.RequireState(gone, table.StateCancelled)
		_, err = relay.TakeIdentity(t.Context(), "elsewhere", "", "a")
		require.Error(t, err)
	})
}

// TestTakeIdentityFails: where Redis cannot be reached the message waits.
func TestTakeIdentityFails(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newScene(t, d)
		relay, err := New(s.config)
		require.NoError(t, err)
		a := s.Insert(insert{ID: "a", DueMs: 1})
		s.redis.with(func() { s.redis.fail = func(table.Identity) error { return store.ErrUnavailable } })
		_, err = relay.TakeIdentity(t.Context(), "orders", "", "a")
		require.ErrorIs(t, err, store.ErrUnavailable)
		s.redis.with(func() { s.redis.err = errTest })
		_, err = relay.TakeIdentity(t.Context(), "orders", "", "a")
		require.ErrorIs(t, err, errTest)
		row, _ := s.Read(a)
		require.Equal(t, table.StatePending, row.State)
	})
}

// TestPurge: rows that have ended long ago go, but for those of a message of which
// an operation is pending, whoever shall take that.
func TestPurge(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newScene(t, d)
		s.config.Keep = 2 * time.Hour
		relay, err := New(s.config)
		require.NoError(t, err)
		tx, commit := s.Begin()
		for range 1500 {
			s.InsertInto(tx, insert{ID: "old", DueMs: 1, State: table.StatePublished})
		}
		s.InsertInto(tx, insert{Queue: "nobody's", ID: "older", DueMs: 1, State: table.StatePublished})
		commit()
		s.Insert(insert{ID: "young", DueMs: 1, State: table.StatePublished})
		s.Insert(insert{ID: "stored", DueMs: 1, State: table.StateStored})
		for id, age := range map[string]time.Duration{"old": 3 * time.Hour, "older": 4 * time.Hour, "young": time.Hour} {
			d.Exec(t, "UPDATE {t} SET finished_ms = ? WHERE message_id = ?", s.Now()-age.Milliseconds(), id)
		}
		s.Insert(insert{Queue: "nobody's", ID: "misspelt", Verb: table.VerbCancel, CreatedMs: s.Now() - 90*time.Minute.Milliseconds()})
		s.Insert(insert{Queue: "nobody's", ID: "older", Verb: table.VerbCancel})
		_, err = relay.tidy(t.Context())
		require.NoError(t, err)
		require.Zero(t, s.Count("message_id = 'old'"))
		require.Equal(t, 5, s.Count("1 = 1"), "one that an operation is about, and what is young")
	})
}

// TestPurgeOperations: operations that have ended go before messages do, but for those of a message
// of which one is pending, and what a message that was refused was told.
func TestPurgeOperations(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newScene(t, d)
		s.config.Keep, s.config.KeepOperations = 3*time.Hour, time.Hour
		relay, err := New(s.config)
		require.NoError(t, err)
		ended := func(id string, verb table.Verb, state table.State, age time.Duration, reason string) {
			t.Helper()
			number := s.Insert(insert{ID: id, Verb: verb, State: state, DueMs: 1})
			d.Exec(t, "UPDATE {t} SET finished_ms = ?, reason = ? WHERE id = ?", s.Now()-age.Milliseconds(), reason, number)
		}
		count := func() map[string]int {
			found := map[string]int{}
			for _, id := range []string{"old", "young", "busy", "refused"} {
				found[id] = s.Count("op > 0 AND message_id = '" + id + "'")
			}
			return found
		}
		for range 1200 { // More than one batch, in one instant.
			s.Insert(insert{ID: "old", Verb: table.VerbReschedule, State: table.StateStored, DueMs: 1})
		}
		d.Exec(t, "UPDATE {t} SET finished_ms = ? WHERE op = 2", s.Now()-150*time.Minute.Milliseconds())
		ended("old", table.VerbSchedule, table.StatePublished, 2*time.Hour, "")
		ended("old", table.VerbCancel, table.StateTooLate, 61*time.Minute, "")
		ended("young", table.VerbCancel, table.StateTooLate, 59*time.Minute, "")
		ended("busy", table.VerbReschedule, table.StateUnknown, 2*time.Hour, "")
		s.Insert(insert{ID: "busy", Verb: table.VerbCancel})
		ended("refused", table.VerbCancel, table.StateCancelled, 2*time.Hour, table.ReasonRefused)
		want := map[string]int{"old": 0, "young": 1, "busy": 2, "refused": 1}
		for range 2 {
			_, err = relay.tidy(t.Context())
			require.NoError(t, err)
			require.Equal(t, want, count())
		}
		require.Equal(t, 1, s.Count("op = 0"), "the message")
		d.Exec(t, "UPDATE {t} SET finished_ms = finished_ms - 90000 WHERE message_id = 'young'")
		relay.purgedMs -= 90000 // As if so much time had passed.
		_, err = relay.tidy(t.Context())
		require.NoError(t, err)
		want["young"] = 0
		require.Equal(t, want, count())

		s.config.KeepOperations = 0
		relay, err = New(s.config)
		require.NoError(t, err)
		ended("old", table.VerbCancel, table.StateTooLate, 2*time.Hour, "")
		_, err = relay.tidy(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, count()["old"], "as all rows")
	})
}

// TestFirstPurgeEndsSoon: a month in which little has ended takes a statement an hour; where
// statements are slow they look at a minute.
func TestFirstPurgeEndsSoon(t *testing.T) {
	t.Parallel()
	const month = 30 * 24 * time.Hour
	statements := 0
	for at, span := time.Duration(0), purgeSpan; at < month; statements++ {
		at, span = at+span, nextSpan(span, time.Millisecond)
		require.LessOrEqual(t, span, time.Hour)
	}
	require.Less(t, statements, 800)
	require.Equal(t, time.Minute, nextSpan(time.Hour, time.Second))
	require.Equal(t, time.Minute, nextSpan(time.Minute, time.Second))
}

func TestWatch(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newScene(t, d)
		ahead := time.Duration(0)
		s.config.Clock = func(context.Context) (time.Time, error) { return time.Now().Add(-ahead), nil }
		relay, err := New(s.config)
		require.NoError(t, err)
		require.NoError(t, relay.watch(t.Context()))
		require.Zero(t, s.observer.backlog)
		require.Less(t, s.observer.skew.Abs(), time.Second)
		require.Zero(t, s.Logs.Count("outbox_clock_skew"))
		longAgo := s.Now() - time.Hour.Milliseconds()
		s.Insert(insert{ID: "a", DueMs: s.Due(30 * time.Minute), CreatedMs: longAgo}) // 30 min
		s.Insert(insert{ID: "far", DueMs: s.Due(far), CreatedMs: longAgo})
		s.Insert(insert{Queue: "elsewhere", ID: "a", DueMs: 1, CreatedMs: longAgo})
		s.Insert(insert{ID: "b", Verb: table.VerbCancel, CreatedMs: longAgo + 20*time.Minute.Milliseconds()}) // 40 min
		ahead = 90 * time.Second
		require.NoError(t, relay.watch(t.Context()))
		require.Equal(t, 2, s.observer.backlog)
		require.InDelta(t, 40, s.observer.oldest.Minutes(), 0.2)
		require.InDelta(t, 90, s.observer.skew.Seconds(), 1)
		require.Equal(t, 1, s.Logs.Count("outbox_clock_skew"))
		require.Equal(t, 2, s.observer.skews)

		s.config.Clock = func(context.Context) (time.Time, error) { return time.Time{}, errors.New("redis is away") }
		s.Insert(insert{ID: "c", DueMs: s.Due(0), CreatedMs: longAgo})
		away, err := New(s.config)
		require.NoError(t, err)
		require.Error(t, away.watch(t.Context()))
		require.Equal(t, 3, s.observer.backlog, "rows wait all the more")
		require.InDelta(t, 60, s.observer.oldest.Minutes(), 0.2)
		require.Equal(t, 2, s.observer.skews)
	})
}

// TestNotify: a notification wakes the relay long before it would look.
func TestNotify(t *testing.T) {
	t.Parallel()
	d := outboxtest.Open(t, schema.Postgres, testenv.Postgres(t))
	s := newScene(t, d)
	_, _ = s.start(func(c *Config) { c.Notify, c.Poll = true, time.Hour })
	listening := func() bool {
		n := 0
		err := d.Query(t.Context(), d.SQL, []any{&n}, nil, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'")
		return err == nil && n == 1
	}
	s.Eventually("it listens", listening)
	tx, commit := s.Begin()
	a := s.InsertInto(tx, insert{ID: "a", DueMs: 1})
	d.ExecIn(t, tx, "SELECT pg_notify(?, '')", d.Table())
	commit()
	s.RequireStored(a)
	// It listens again after its session was ended.
	_, err := d.SQL.ExecContext(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'")
	require.NoError(t, err)
	b := s.Insert(insert{ID: "b", DueMs: 1})
	s.Eventually("it listens again", listening)
	s.RequireStored(b)
	config := s.config
	config.Notify, config.Database = true, &table.Database{}
	_, err = New(config)
	require.Error(t, err)
}

func TestConfig(t *testing.T) {
	t.Parallel()
	clock := func(context.Context) (time.Time, error) { return time.Time{}, errors.New("none") }
	for name, config := range map[string]Config{
		"database": {Clock: clock, Queues: []outbox.Queue{{}}},
		"clock":    {Database: &table.Database{}, Queues: []outbox.Queue{{}}},
		"queues":   {Database: &table.Database{}, Clock: clock},
		"numbers":  {Database: &table.Database{}, Clock: clock, Queues: []outbox.Queue{{}}, Lanes: -1},
	} {
		_, err := New(config)
		require.Error(t, err, name)
	}
}

// TestUnfit: a relay of a database without its table says so.
func TestUnfit(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := newScene(t, d.With(t, func(c *table.Config) { c.Table = "nothing" }))
		relay := s.relay()
		require.True(t, table.IsUnfit(relay.Run(t.Context())))
		require.True(t, table.IsUnfit(relay.State()))
	})
}
