package migrate_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/outbox/migrate"
	"github.com/delaybridge/delaybridge/internal/outbox/sqldb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func forEach(t *testing.T, run func(t *testing.T, db *sql.DB, dialect schema.Dialect)) {
	for dialect, dsn := range map[schema.Dialect]func(testing.TB) string{schema.Postgres: testenv.Postgres, schema.MySQL: testenv.MariaDB} {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			db, err := sqldb.Open(dialect, dsn(t))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			run(t, db, dialect)
		})
	}
}

// tables counts those of a schema, or if it is empty, of the session's.
func tables(t *testing.T, db *sql.DB, dialect schema.Dialect, in string) int {
	t.Helper()
	where := "'" + in + "'"
	switch {
	case in != "":
	case dialect == schema.MySQL:
		where = "DATABASE()"
	default:
		where = "current_schema()"
	}
	var n int
	require.NoError(t, db.QueryRowContext(t.Context(),
		"SELECT count(*) FROM information_schema.tables WHERE table_schema = "+where).Scan(&n))
	return n
}

func TestUpStatusDown(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, db *sql.DB, dialect schema.Dialect) {
		other := testenv.Schema(t, db)
		for _, in := range []string{"", other} {
			table := strings.TrimPrefix(in+".outgoing", ".")
			upStatusDown(t, db, dialect, table)
			require.Equal(t, 1, tables(t, db, dialect, ""), "nothing of a schema is outside of it")
		}
	})
}

func upStatusDown(t *testing.T, db *sql.DB, dialect schema.Dialect, table string) {
	t.Helper()
	in, _ := schema.Split(table)
	m, err := migrate.New(db, dialect, table)
	require.NoError(t, err)
	status, err := m.Status(t.Context())
	require.NoError(t, err)
	known, err := schema.Migrations(dialect, table)
	require.NoError(t, err)
	require.Len(t, status, len(known))
	for i, k := range known {
		require.Equal(t, migrate.Step{Version: k.Version, Name: k.Name}, status[i])
	}
	require.Zero(t, tables(t, db, dialect, in), "asking changes nothing")

	steps, err := m.Up(t.Context())
	require.NoError(t, err)
	require.Equal(t, status, steps)
	steps, err = m.Up(t.Context())
	require.NoError(t, err)
	require.Empty(t, steps)
	status, err = m.Status(t.Context())
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), status[0].AppliedAt, 24*time.Hour)
	require.Equal(t, 3, tables(t, db, dialect, in))

	_, err = db.ExecContext(t.Context(), "INSERT INTO "+table+" (queue, message_id, topic, body, due_ms) VALUES ('q', 'm', 't', '', 5)")
	require.NoError(t, err)
	for _, k := range slices.Backward(known[1:]) {
		steps, err = m.Down(t.Context(), false)
		require.NoError(t, err, "the messages stay")
		require.Equal(t, k.Version, steps[0].Version)
	}
	_, err = m.Down(t.Context(), false)
	require.ErrorIs(t, err, migrate.ErrPending)
	_, err = m.Up(t.Context())
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), "UPDATE "+table+" SET status = 2")
	require.NoError(t, err)
	down(t, m, false)
	require.Equal(t, 1, tables(t, db, dialect, in), "the versions are kept")
	steps, err = m.Down(t.Context(), false)
	require.NoError(t, err)
	require.Empty(t, steps)
	_, err = m.Up(t.Context())
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), "INSERT INTO "+table+" (queue, message_id, topic, body, due_ms) VALUES ('q', 'm', 't', '', 5)")
	require.NoError(t, err)
	down(t, m, true)
}

// down takes back all migrations, one after the other.
func down(t *testing.T, m *migrate.Migrator, force bool) {
	t.Helper()
	for range schema.Version {
		steps, err := m.Down(t.Context(), force)
		require.NoError(t, err)
		require.Len(t, steps, 1)
	}
}

func TestOneAtATime(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, db *sql.DB, dialect schema.Dialect) {
		counts := make([]int, 4)
		var group errgroup.Group
		for i := range counts {
			group.Go(func() error {
				m, err := migrate.New(db, dialect, "outer_box")
				if err != nil {
					return err
				}
				steps, err := m.Up(t.Context())
				counts[i] = len(steps)
				return err
			})
		}
		require.NoError(t, group.Wait())
		require.ElementsMatch(t, []int{0, 0, 0, schema.Version}, counts)
	})
}

func TestErrors(t *testing.T) {
	t.Parallel()
	_, err := migrate.New(nil, schema.Postgres, "a-b")
	require.ErrorContains(t, err, `table "a-b"`)
	for dialect, dsn := range map[schema.Dialect]string{
		schema.Postgres: "postgres://u:hunter2@127.0.0.1:1/d?sslmode=disable", schema.MySQL: "u:hunter2@tcp(127.0.0.1:1)/d",
	} {
		db, err := sqldb.Open(dialect, dsn)
		require.NoError(t, err)
		m, err := migrate.New(db, dialect, "outer_box")
		require.NoError(t, err)
		_, err = m.Status(t.Context())
		require.ErrorContains(t, err, "ask for migrations of table outer_box: ")
		_, err = m.Up(t.Context())
		require.ErrorContains(t, err, "migrate table outer_box up: ")
		require.NotContains(t, err.Error(), "hunter2")
		require.NoError(t, db.Close())
		require.ErrorContains(t, sqldb.Check(dialect, "a b:hunter2//%"), "is not a")
		_, err = sqldb.Open(dialect, "a b:hunter2//%")
		require.Error(t, err)
		require.NotContains(t, err.Error(), "hunter2")
	}
	require.Error(t, sqldb.Check("oracle", ""))
}

// TestUpLetsProducersGoOn: while a transaction uses the table, a migration neither waits
// for it with producers behind, nor gives up.
func TestUpLetsProducersGoOn(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, db *sql.DB, dialect schema.Dialect) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		m, err := migrate.New(db, dialect, "outgoing")
		require.NoError(t, err)
		_, err = m.Up(ctx)
		require.NoError(t, err)
		for range schema.Version - 1 {
			_, err = m.Down(ctx, false)
			require.NoError(t, err)
		}
		const insert = "INSERT INTO outgoing (queue, message_id, topic, body, due_ms) VALUES ('q', '%d', 't', '', 5)"
		held, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		defer func() { _ = held.Rollback() }()
		_, err = held.ExecContext(ctx, fmt.Sprintf(insert, 0))
		require.NoError(t, err)

		waits, done := make(chan migrate.LockWait, 100), make(chan error, 1)
		m.OnWaiting(func(w migrate.LockWait) { waits <- w })
		go func() {
			_, err := m.Up(ctx)
			done <- err
		}()
		select {
		case w := <-waits:
			require.Equal(t, "00002_queues.sql", w.Step)
			require.Contains(t, w.Statement, "ALTER TABLE outgoing")
		case err := <-done:
			require.FailNow(t, "it did not wait", "%v", err)
		case <-ctx.Done():
			require.FailNow(t, "it says nothing")
		}
		for i := 1; i <= 20; i++ { // While it tries again.
			_, err = db.ExecContext(ctx, fmt.Sprintf(insert, i))
			require.NoError(t, err)
		}
		require.Empty(t, done, "it goes on trying")
		require.NoError(t, held.Commit())
		require.NoError(t, <-done)
		status, err := m.Status(ctx)
		require.NoError(t, err)
		require.False(t, status[len(status)-1].AppliedAt.IsZero())
	})
}
