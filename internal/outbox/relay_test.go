package outbox

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/store"
	"github.com/delaybridge/delaybridge/internal/testenv"
)

// TestTakeIdentity: the consumer of compensation messages and the relay take the
// same locks for the same write.
func TestTakeIdentity(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newReal(t, d)
		relay, err := NewRelay(s.config)
		require.NoError(t, err)
		take := func(id string) Taken {
			taken, err := relay.TakeIdentity(t.Context(), s.orders, "k", id)
			require.NoError(t, err)
			return taken
		}
		require.Equal(t, TakenAbsent, take("a"))
		a := s.insert(insert{key: "k", id: "a", dueMs: s.due(soon), body: strings.Repeat("x", 100<<10)})
		tx, commit := s.begin()
		_, err = d.query("").add("SELECT id FROM {t} WHERE id = ? FOR UPDATE", a).exec(t.Context(), tx)
		require.NoError(t, err)
		require.Equal(t, TakenLocked, take("a"))
		commit()
		require.Equal(t, TakenDone, take("a"))
		s.requireStored(a)
		require.Len(t, s.find("k", "a").Body, 100<<10)
		require.Equal(t, TakenAbsent, take("a"), "delivered again")

		far := s.insert(insert{key: "k", id: "far", dueMs: s.due(far)})
		require.Equal(t, TakenDone, take("far"), "the relay loads it when it is time")
		row, _ := s.read(far)
		require.Equal(t, statePending, row.state)
		due := s.due(soon)
		move := s.insert(insert{key: "k", id: "far", verb: verbReschedule, dueMs: due})
		require.Equal(t, TakenDone, take("far"))
		s.requireState(move, stateStored)
		s.requireStored(far)
		require.Equal(t, due, s.find("k", "far").DueAt.UnixMilli())

		gone := s.insert(insert{key: "k", id: "gone", dueMs: s.due(soon)})
		stop := s.insert(insert{key: "k", id: "gone", verb: verbCancel})
		require.Equal(t, TakenDone, take("gone"))
		s.requireState(stop, stateCancelled)
		s.requireState(gone, stateCancelled)
		_, err = relay.TakeIdentity(t.Context(), "elsewhere", "", "a")
		require.Error(t, err)
	})
}

// TestTakeIdentityFails: where Redis cannot be reached the message waits.
func TestTakeIdentityFails(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newScene(t, d)
		relay, err := NewRelay(s.config)
		require.NoError(t, err)
		a := s.insert(insert{id: "a", dueMs: 1})
		s.redis.with(func() { s.redis.fail = func(identity) error { return store.ErrUnavailable } })
		_, err = relay.TakeIdentity(t.Context(), "orders", "", "a")
		require.ErrorIs(t, err, store.ErrUnavailable)
		s.redis.with(func() { s.redis.err = errTest })
		_, err = relay.TakeIdentity(t.Context(), "orders", "", "a")
		require.ErrorIs(t, err, errTest)
		row, _ := s.read(a)
		require.Equal(t, statePending, row.state)
	})
}

// TestPurge: rows that have ended long ago go, but for those of a message of which
// an operation is pending, whoever shall take that.
func TestPurge(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newScene(t, d)
		s.config.Keep = 2 * time.Hour
		relay, err := NewRelay(s.config)
		require.NoError(t, err)
		tx, commit := s.begin()
		for range 1500 {
			s.insertInto(tx, insert{id: "old", dueMs: 1, state: statePublished})
		}
		s.insertInto(tx, insert{queue: "nobody's", id: "older", dueMs: 1, state: statePublished})
		commit()
		s.insert(insert{id: "young", dueMs: 1, state: statePublished})
		s.insert(insert{id: "stored", dueMs: 1, state: stateStored})
		for id, age := range map[string]time.Duration{"old": 3 * time.Hour, "older": 4 * time.Hour, "young": time.Hour} {
			_, err := d.query("").add("UPDATE {t} SET finished_ms = {now} - ? WHERE message_id = ?", age.Milliseconds(), id).exec(t.Context(), d.db)
			require.NoError(t, err)
		}
		s.insert(insert{queue: "nobody's", id: "misspelt", verb: verbCancel, createdMs: s.now() - 90*time.Minute.Milliseconds()})
		s.insert(insert{queue: "nobody's", id: "older", verb: verbCancel})
		require.NoError(t, relay.tidy(t.Context()))
		require.Zero(t, s.count("message_id = 'old'"))
		require.Equal(t, 5, s.count("1 = 1"), "one that an operation is about, and what is young")
	})
}

func TestWatch(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newScene(t, d)
		ahead := time.Duration(0)
		s.config.Clock = func(context.Context) (time.Time, error) { return time.Now().Add(-ahead), nil }
		relay, err := NewRelay(s.config)
		require.NoError(t, err)
		require.NoError(t, relay.watch(t.Context()))
		require.Zero(t, s.observer.backlog)
		require.Less(t, s.observer.skew.Abs(), time.Second)
		require.Zero(t, s.logs.count("outbox_clock_skew"))
		longAgo := s.now() - time.Hour.Milliseconds()
		s.insert(insert{id: "a", dueMs: s.due(30 * time.Minute), createdMs: longAgo}) // 30 min
		s.insert(insert{id: "far", dueMs: s.due(far), createdMs: longAgo})
		s.insert(insert{queue: "elsewhere", id: "a", dueMs: 1, createdMs: longAgo})
		s.insert(insert{id: "b", verb: verbCancel, createdMs: longAgo + 20*time.Minute.Milliseconds()}) // 40 min
		ahead = 90 * time.Second
		require.NoError(t, relay.watch(t.Context()))
		require.Equal(t, 2, s.observer.backlog)
		require.InDelta(t, 40, s.observer.oldest.Minutes(), 0.2)
		require.InDelta(t, 90, s.observer.skew.Seconds(), 1)
		require.Equal(t, 1, s.logs.count("outbox_clock_skew"))
		require.Equal(t, 2, s.observer.skews)
	})
}

// TestNotify: a notification wakes the relay long before it would look.
func TestNotify(t *testing.T) {
	t.Parallel()
	d := openTest(t, schema.Postgres, testenv.Postgres(t))
	s := newScene(t, d)
	_, _ = s.start(func(c *Config) { c.Notify, c.Poll = true, time.Hour })
	listening := func() bool {
		n := 0
		err := d.query("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'").
			each(t.Context(), d.db, func(rows *sql.Rows) error { return rows.Scan(&n) })
		return err == nil && n == 1
	}
	s.eventually("it listens", listening)
	tx, commit := s.begin()
	a := s.insertInto(tx, insert{id: "a", dueMs: 1})
	_, err := d.query("").add("SELECT pg_notify(?, '')", d.table).exec(t.Context(), tx)
	require.NoError(t, err)
	commit()
	s.requireStored(a)
	// It listens again after its session was ended.
	_, err = d.db.ExecContext(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'")
	require.NoError(t, err)
	b := s.insert(insert{id: "b", dueMs: 1})
	s.eventually("it listens again", listening)
	s.requireStored(b)
	config := s.config
	config.Notify, config.Database = true, &Database{}
	_, err = NewRelay(config)
	require.Error(t, err)
}

func TestCheck(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		require.NoError(t, d.Check(t.Context()))
		_, err := d.db.ExecContext(t.Context(), "ALTER TABLE box DROP COLUMN maybe")
		require.NoError(t, err)
		err = d.Check(t.Context())
		require.True(t, IsUnfit(err), "%v", err)
		other := *d
		other.table = "nothing"
		err = other.Check(t.Context())
		require.True(t, IsUnfit(err), "%v", err)
		require.ErrorContains(t, err, "bridge outbox migrate up")
		s := newScene(t, &other)
		relay, err := NewRelay(s.config)
		require.NoError(t, err)
		require.True(t, IsUnfit(relay.Run(t.Context())))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err = d.Check(ctx)
		require.Error(t, err)
		require.False(t, IsUnfit(err))
	})
}

func TestVersions(t *testing.T) {
	t.Parallel()
	for version, fit := range map[string]bool{
		"8.0.13": true, "8.0.12": false, "8.4.3": true, "9.1.0-commercial": true, "5.7.44-log": false, "8.0.36-28.1": true,
		"10.6.0-MariaDB": true, "10.5.29-MariaDB": false, "5.5.5-10.11.6-MariaDB-1": true, "11.4.2-MariaDB-log": true, "x": false,
	} {
		err := mysqlDialect.checkVersion(version)
		require.Equal(t, fit, err == nil, version)
		require.Equal(t, !fit, IsUnfit(err), version)
	}
	for version, fit := range map[string]bool{"120000": true, "150013": true, "110022": false, "x": false} {
		require.Equal(t, fit, postgres.checkVersion(version) == nil, version)
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]DatabaseConfig{
		"dialect":  {Dialect: "oracle"},
		"table":    {Dialect: schema.Postgres, Table: "a b"},
		"postgres": {Dialect: schema.Postgres, DSN: "postgres://me:hidden@host:port/db"},
		"mysql":    {Dialect: schema.MySQL, DSN: "me:hidden@what"},
	} {
		_, err := Open(config)
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), "hidden", name)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	clock := func(context.Context) (time.Time, error) { return time.Time{}, errors.New("none") }
	for name, config := range map[string]Config{
		"database": {Clock: clock, Queues: []Queue{{}}},
		"clock":    {Database: &Database{}, Queues: []Queue{{}}},
		"queues":   {Database: &Database{}, Clock: clock},
		"numbers":  {Database: &Database{}, Clock: clock, Queues: []Queue{{}}, Lanes: -1},
	} {
		_, err := NewRelay(config)
		require.Error(t, err, name)
	}
}
