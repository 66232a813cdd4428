package main_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

func postgresConn(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) }) // the server may have gone
	return conn
}

func mariaDB(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func writePostgres(t *testing.T, s *testenv.Server) {
	t.Helper()
	conn := postgresConn(t, s.URL())
	var connections string
	require.NoError(t, conn.QueryRow(t.Context(), "SHOW max_connections").Scan(&connections))
	require.Equal(t, "7", connections, "the caller's configuration wins")
	_, err := conn.Exec(t.Context(), "CREATE TABLE t (v text); INSERT INTO t VALUES ('v')")
	require.NoError(t, err)
}

func readPostgres(t *testing.T, s *testenv.Server) {
	t.Helper()
	var v string
	require.NoError(t, postgresConn(t, s.URL()).QueryRow(t.Context(), "SELECT v FROM t").Scan(&v))
	require.Equal(t, "v", v)
}

func writeMariaDB(t *testing.T, s *testenv.Server) {
	t.Helper()
	db := mariaDB(t, s.URL())
	var connections int
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT @@max_connections").Scan(&connections))
	require.Equal(t, 10, connections, "the caller's configuration wins")
	_, err := db.ExecContext(t.Context(), "CREATE TABLE t (v TEXT)")
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), "INSERT INTO t VALUES ('v')")
	require.NoError(t, err)
}

func readMariaDB(t *testing.T, s *testenv.Server) {
	t.Helper()
	var v string
	require.NoError(t, mariaDB(t, s.URL()).QueryRowContext(t.Context(), "SELECT v FROM t").Scan(&v))
	require.Equal(t, "v", v)
}

// TestFreshDatabases makes the same table in two databases of each kind, and
// looks for the databases when the test that asked for them has ended.
func TestFreshDatabases(t *testing.T) {
	t.Parallel()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		var names []string
		t.Run("in use", func(t *testing.T) {
			for range 2 {
				conn := postgresConn(t, testenv.Postgres(t))
				_, err := conn.Exec(t.Context(), "CREATE TABLE t (v text)")
				require.NoError(t, err)
				names = append(names, conn.Config().Database)
			}
		})
		conn := postgresConn(t, testenv.Postgres(t))
		var left int
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_database WHERE datname = ANY($1)", names).Scan(&left))
		require.Len(t, names, 2)
		require.Zero(t, left)
	})
	t.Run("mariadb", func(t *testing.T) {
		t.Parallel()
		var names []string
		t.Run("in use", func(t *testing.T) {
			for range 2 {
				db := mariaDB(t, testenv.MariaDB(t))
				_, err := db.ExecContext(t.Context(), "CREATE TABLE t (at DATETIME(3))")
				require.NoError(t, err)
				_, err = db.ExecContext(t.Context(), "INSERT INTO t VALUES ('2026-01-02 03:04:05.006')")
				require.NoError(t, err)
				var at time.Time
				require.NoError(t, db.QueryRowContext(t.Context(), "SELECT at FROM t").Scan(&at), "parseTime is on")
				var name string
				require.NoError(t, db.QueryRowContext(t.Context(), "SELECT database()").Scan(&name))
				names = append(names, name)
			}
		})
		db := mariaDB(t, testenv.MariaDB(t))
		require.Len(t, names, 2)
		var left int
		require.NoError(t, db.QueryRowContext(t.Context(),
			"SELECT count(*) FROM information_schema.schemata WHERE schema_name IN (?, ?)", names[0], names[1]).Scan(&left))
		require.Zero(t, left)
	})
}

// TestDatabasesPause asks on connections that are open already: PostgreSQL
// serves each by a process of its own.
func TestDatabasesPause(t *testing.T) {
	t.Parallel()
	for _, kind := range []struct {
		name  string
		start func(testing.TB, string) *testenv.Server
		ask   func(t *testing.T, s *testenv.Server) func(context.Context) error
	}{
		{"postgres", testenv.StartPostgres, func(t *testing.T, s *testenv.Server) func(context.Context) error {
			t.Helper()
			conn := postgresConn(t, s.URL())
			return conn.Ping
		}},
		{"mariadb", testenv.StartMariaDB, func(t *testing.T, s *testenv.Server) func(context.Context) error {
			t.Helper()
			conn, err := mariaDB(t, s.URL()).Conn(t.Context())
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.Close() }) // it says that it was lost
			return conn.PingContext
		}},
	} {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			s := kind.start(t, "")
			first, second := kind.ask(t, s), kind.ask(t, s)
			require.NoError(t, first(t.Context()))
			s.Pause()
			// The answer comes late, so the first connection is lost with its request.
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			require.Error(t, first(ctx))
			s.Resume()
			require.NoError(t, second(t.Context()))
			s.Pause()
			s.Kill()
			require.Error(t, second(t.Context()))
			s.Start()
			require.NoError(t, kind.ask(t, s)(t.Context()))
		})
	}
}

func TestDatabasesCheckThePassword(t *testing.T) {
	t.Parallel()
	wanted, err := pgx.ParseConfig(testenv.Postgres(t))
	require.NoError(t, err)
	wanted.Password = "wrong"
	_, err = pgx.ConnectConfig(t.Context(), wanted)
	var refused *pgconn.PgError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "28P01", refused.Code)

	config, err := mysql.ParseDSN(testenv.MariaDB(t))
	require.NoError(t, err)
	config.Passwd = "wrong"
	err = mariaDB(t, config.FormatDSN()).PingContext(t.Context())
	var denied *mysql.MySQLError
	require.ErrorAs(t, err, &denied)
	require.EqualValues(t, 1045, denied.Number)
}
