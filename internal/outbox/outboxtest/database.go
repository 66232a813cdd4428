package outboxtest

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/outbox/sqldb"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// Database is a database with an outbox's table, and the test's own way to it.
type Database struct {
	*table.Database
	SQL    *sql.DB
	config table.Config
}

// Runner is *sql.DB or *sql.Tx.
type Runner interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// OnBoth runs a test on both databases.
func OnBoth(t *testing.T, test func(t *testing.T, d *Database)) {
	t.Helper()
	t.Parallel()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, Open(t, schema.Postgres, testenv.Postgres(t)))
	})
	t.Run("mariadb", func(t *testing.T) {
		t.Parallel()
		test(t, Open(t, schema.MySQL, testenv.MariaDB(t)))
	})
}

// Open opens a database and makes the tables.
func Open(t *testing.T, dialect schema.Dialect, dsn string) *Database {
	t.Helper()
	// A busy machine is no error: by default a connection has five seconds.
	dsn += map[schema.Dialect]string{schema.Postgres: "&connect_timeout=120", schema.MySQL: "&timeout=2m"}[dialect]
	d := &Database{config: table.Config{Dialect: dialect, Source: sqldb.Plain(dsn), Table: "box", Connections: 20}}
	if dialect == schema.Postgres {
		config, err := sqldb.Postgres(dsn)
		require.NoError(t, err)
		config.DefaultQueryExecMode = pgx.QueryExecModeExec
		d.SQL = stdlib.OpenDB(*config)
	} else {
		config, err := sqldb.MySQL(dsn)
		require.NoError(t, err)
		config.InterpolateParams = true
		connector, err := mysql.NewConnector(config)
		require.NoError(t, err)
		d.SQL = sql.OpenDB(connector)
	}
	t.Cleanup(func() { _ = d.SQL.Close() })
	d = d.With(t, func(*table.Config) {})
	d.MakeTable(t)
	return d
}

// With opens the database again, with another configuration.
func (d *Database) With(t *testing.T, adjust func(*table.Config)) *Database {
	t.Helper()
	other := &Database{SQL: d.SQL, config: d.config}
	adjust(&other.config)
	var err error
	other.Database, err = table.Open(other.config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = other.Close() })
	return other
}

// MakeTable makes the table of the configuration.
func (d *Database) MakeTable(t *testing.T) {
	t.Helper()
	statements, err := schema.Up(d.config.Dialect, d.config.Table)
	require.NoError(t, err)
	for _, s := range statements {
		_, err := d.SQL.ExecContext(t.Context(), s)
		require.NoError(t, err, s)
	}
}

// IsPostgres tells the one from the other.
func (d *Database) IsPostgres() bool { return d.config.Dialect == schema.Postgres }

// IsMariaDB tells it from MySQL.
func (d *Database) IsMariaDB(t *testing.T) bool {
	t.Helper()
	if d.IsPostgres() {
		return false
	}
	var version string
	require.NoError(t, d.Query(t.Context(), d.SQL, []any{&version}, nil, "SELECT VERSION()"))
	return strings.Contains(strings.ToLower(version), "mariadb")
}

// Series is a table whose column n has the numbers from 1 to last.
func (d *Database) Series(last int) string {
	if d.IsPostgres() {
		return fmt.Sprintf("generate_series(1, %d) n", last)
	}
	return fmt.Sprintf("JSON_TABLE(CONCAT('[0', REPEAT(',0', %d - 1), ']'), '$[*]' COLUMNS (n FOR ORDINALITY)) n", last)
}

// Text is a statement for this database: "{t}" stands for its table, "?" for the
// next argument.
func (d *Database) Text(query string) string {
	query = strings.ReplaceAll(query, "{t}", d.config.Table)
	if !d.IsPostgres() {
		return query
	}
	parts := strings.Split(query, "?")
	for i := range parts[1:] {
		parts[i] += "$" + strconv.Itoa(i+1)
	}
	return strings.Join(parts, "")
}

// Exec runs a statement, see [Database.Text].
func (d *Database) Exec(t *testing.T, query string, args ...any) {
	t.Helper()
	d.ExecIn(t, d.SQL, query, args...)
}

// ExecIn runs a statement in a transaction.
func (d *Database) ExecIn(t *testing.T, tx Runner, query string, args ...any) {
	t.Helper()
	_, err := tx.ExecContext(t.Context(), d.Text(query), args...)
	require.NoError(t, err)
}

// Query reads what a statement returns, one row into the same variables after the
// other.
func (d *Database) Query(ctx context.Context, on Runner, into []any, each func(), query string, args ...any) error {
	rows, err := on.QueryContext(ctx, d.Text(query), args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // rows.Err has the errors that matter.
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		if each != nil {
			each()
		}
	}
	return rows.Err()
}

// Analyze has the database count the table's rows.
func (d *Database) Analyze(t *testing.T) {
	t.Helper()
	statement := "ANALYZE TABLE {t}"
	if d.IsPostgres() {
		statement = "ANALYZE {t}"
	}
	rows, err := d.SQL.QueryContext(t.Context(), d.Text(statement))
	require.NoError(t, err)
	for rows.Next() {
		continue
	}
	require.NoError(t, rows.Close())
}
