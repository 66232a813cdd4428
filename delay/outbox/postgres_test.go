package outbox_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// newPostgres is a new database with the tables, and its URL.
func newPostgres(t *testing.T) (*database, string) {
	t.Helper()
	dsn := testenv.Postgres(t)
	db := openSQL(t, "pgx", outbox.PostgreSQL, dsn)
	db.migrate(t)
	return db, dsn
}

func TestNotify(t *testing.T) {
	t.Parallel()
	db, dsn := newPostgres(t)
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(t.Context())) }()
	_, err = conn.Exec(t.Context(), "LISTEN delay_outbox")
	require.NoError(t, err)
	box := outbox.New(outbox.PostgreSQL, outbox.WithNotify())
	for name, call := range map[string]func(tx outbox.Tx) error{
		"schedule": func(tx outbox.Tx) error {
			_, err := box.Schedule(t.Context(), tx, "orders", delay.Message{Topic: "t"}, delay.After(0))
			return err
		},
		"cancel": func(tx outbox.Tx) error { return box.Cancel(t.Context(), tx, "orders", firstRef) },
		"with the schema": func(tx outbox.Tx) error {
			box := outbox.New(outbox.PostgreSQL, outbox.WithNotify(), outbox.WithTable("public.delay_outbox"))
			return box.Cancel(t.Context(), tx, "orders", firstRef)
		},
	} {
		tx := db.begin(t)
		require.NoError(t, call(tx))
		require.NoError(t, tx.Commit())
		notification, err := conn.WaitForNotification(within(t))
		require.NoError(t, err, name)
		require.Equal(t, "delay_outbox", notification.Channel)
	}
}

// TestProducersRights has a user who may do no more than docs/operations.md says.
func TestProducersRights(t *testing.T) {
	t.Parallel()
	db, _ := newPostgres(t)
	role := testenv.Name(t, "role")
	db.run(t, `CREATE ROLE "`+role+`"`)
	t.Cleanup(func() {
		for _, statement := range []string{`DROP OWNED BY "` + role + `"`, `DROP ROLE "` + role + `"`} {
			_, err := db.ExecContext(context.WithoutCancel(t.Context()), statement)
			assert.NoError(t, err)
		}
	})
	db.run(t, `GRANT SELECT, INSERT ON delay_outbox TO "`+role+`"`)
	tx := db.begin(t)
	_, err := tx.ExecContext(t.Context(), `SET LOCAL ROLE "`+role+`"`)
	require.NoError(t, err)
	box := outbox.New(outbox.PostgreSQL)
	_, err = box.Schedule(t.Context(), tx, "orders", first, delay.After(time.Hour))
	require.NoError(t, err)
	_, err = box.Schedule(t.Context(), tx, "orders", first, delay.After(time.Hour))
	require.ErrorIs(t, err, delay.ErrDuplicate)
	require.NoError(t, box.Cancel(t.Context(), tx, "orders", firstRef))
	_, err = box.Get(t.Context(), tx, "orders", firstRef)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
}

// TestIsolation has transactions that see the database as it was.
func TestIsolation(t *testing.T) {
	t.Parallel()
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		t.Run(level.String(), func(t *testing.T) {
			t.Parallel()
			forEach(t, func(t *testing.T, db *database) {
				box := outbox.New(db.dialect)
				commit(t, db, box)
				tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
				require.NoError(t, err)
				defer func() { _ = tx.Rollback() }() // Does nothing after the commit.
				_, err = box.Schedule(within(t), tx, "orders", first, delay.After(0))
				require.ErrorIs(t, err, delay.ErrDuplicate)
				require.NoError(t, box.Cancel(within(t), tx, "orders", firstRef))
				row, err := box.Get(within(t), tx, "orders", firstRef)
				require.NoError(t, err)
				require.Equal(t, outbox.OpCancel, row.Op)
				require.NoError(t, tx.Commit())
			})
		})
	}
}
