package outbox_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/delay/outbox/pgxtx"
	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

func TestMain(m *testing.M) {
	// After some failed dials go-redis' pool looks once a second whether the
	// server is back, and notices only then that it was closed.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// Generous, as tests share the machine; else PostgreSQL waits for a lock for ever, and MariaDB for 50 s.
const prompt = 30 * time.Second

// transaction is what the tests need of one, whatever the driver.
type transaction interface {
	outbox.Tx
	Commit() error
	Rollback() error
}

// database is a new database with the tables, and one way to speak to it.
type database struct {
	*sql.DB // for what the tests themselves ask; always by way of database/sql
	dialect outbox.Dialect
	begin   func(t *testing.T) transaction
}

// Commit makes it pass for a transaction, whose statements are each committed at once.
func (*database) Commit() error { return nil }

// forEach runs a test on each driver, each with a new database.
func forEach(t *testing.T, run func(t *testing.T, db *database)) {
	for name, open := range map[string]func(*testing.T) *database{
		"pgx stdlib": func(t *testing.T) *database { return openSQL(t, "pgx", outbox.PostgreSQL, testenv.Postgres(t)) },
		"lib pq":     func(t *testing.T) *database { return openSQL(t, "postgres", outbox.PostgreSQL, testenv.Postgres(t)) },
		"pgx":        openPgx,
		"mariadb":    func(t *testing.T) *database { return openSQL(t, "mysql", outbox.MySQL, testenv.MariaDB(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t)
			db.migrate(t)
			run(t, db)
		})
	}
}

func (d *database) migrate(t testing.TB) {
	t.Helper()
	statements, err := schema.Up(d.dialect, schema.DefaultTable)
	require.NoError(t, err)
	for _, statement := range statements {
		d.run(t, statement)
	}
}

func openSQL(t testing.TB, driver string, dialect outbox.Dialect, dsn string) *database {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return &database{DB: db, dialect: dialect, begin: func(t *testing.T) transaction {
		t.Helper()
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback() }) // An error where the test ended it.
		return tx
	}}
}

func openPgx(t *testing.T) *database {
	t.Helper()
	dsn := testenv.Postgres(t)
	db := openSQL(t, "pgx", outbox.PostgreSQL, dsn)
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	db.begin = func(t *testing.T) transaction {
		t.Helper()
		tx, err := pool.Begin(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // An error where the test ended it.
		ctx := t.Context()
		return pgxTransaction{
			Tx: pgxtx.Wrap(tx), commit: func() error { return tx.Commit(ctx) }, rollback: func() error { return tx.Rollback(ctx) },
		}
	}
	return db
}

type pgxTransaction struct {
	*pgxtx.Tx
	commit, rollback func() error
}

func (p pgxTransaction) Commit() error   { return p.commit() }
func (p pgxTransaction) Rollback() error { return p.rollback() }

func (d *database) run(t testing.TB, statement string) {
	t.Helper()
	_, err := d.ExecContext(t.Context(), statement)
	require.NoError(t, err, statement)
}

// number reads one number.
func (d *database) number(t *testing.T, query string) int64 {
	t.Helper()
	var n int64
	require.NoError(t, d.QueryRowContext(t.Context(), query).Scan(&n), query)
	return n
}

// clock is the database's clock in milliseconds since 1970.
func (d *database) clock(t *testing.T) int64 {
	t.Helper()
	if d.dialect == outbox.PostgreSQL {
		return d.number(t, "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint")
	}
	return d.number(t, "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000")
}

// within bounds a call that must not wait for a lock.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), prompt)
	t.Cleanup(cancel)
	return ctx
}
