package testenv

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
)

// How long making or dropping a database may take.
const databaseTimeout = 60 * time.Second

var (
	sharedPostgres = &sharedServer{
		kind: "PostgreSQL", env: "DELAYBRIDGE_TEST_POSTGRES_URL",
		start: func(ctx context.Context) (*service.Server, error) {
			return service.StartPostgres(ctx, service.PostgresUnsafe)
		},
	}
	sharedMariaDB = &sharedServer{
		kind: "MariaDB", env: "DELAYBRIDGE_TEST_MARIADB_URL",
		start: func(ctx context.Context) (*service.Server, error) {
			return service.StartMariaDB(ctx, service.MariaDBUnsafe)
		},
	}
)

// Postgres returns the URL of a new database on a shared PostgreSQL, with a user
// who may do everything. The test's end drops it, whoever is still connected. The test
// must import a driver of database/sql, as for all of a database here.
// Without PostgreSQL the test is skipped, or fails where CI=true.
func Postgres(t testing.TB) string {
	t.Helper()
	server := sharedPostgres.get(t)
	name := Name(t, "test")
	execute(t.Context(), t, service.OpenPostgres, server, `CREATE DATABASE "`+name+`"`)
	t.Cleanup(func() {
		execute(context.Background(), t, service.OpenPostgres, server,
			"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '"+name+"'",
			`DROP DATABASE "`+name+`"`)
	})
	address, err := url.Parse(server)
	fatal(t, err)
	address.Path = "/" + name
	return address.String()
}

// MariaDB returns the DSN of a new database on a shared MariaDB, in the form of
// github.com/go-sql-driver/mysql, with a user who may do everything. The test's
// end drops it. Without MariaDB the test is skipped, or fails where CI=true.
func MariaDB(t testing.TB) string {
	t.Helper()
	server := sharedMariaDB.get(t)
	name := Name(t, "test")
	execute(t.Context(), t, service.OpenMariaDB, server, "CREATE DATABASE `"+name+"`")
	t.Cleanup(func() { execute(context.Background(), t, service.OpenMariaDB, server, "DROP DATABASE `"+name+"`") })
	address, database, found := strings.Cut(server, ")/")
	if !found {
		t.Fatalf("%s is no DSN of user:password@tcp(host:port)/database?options", server)
	}
	_, options, _ := strings.Cut(database, "?")
	return address + ")/" + name + "?" + options
}

// Schema makes a schema in which the database's sessions do not look by themselves,
// and returns its name. In MariaDB it is another database, which the test's end
// drops; db must be open then.
func Schema(t testing.TB, db *sql.DB) string {
	t.Helper()
	name := strings.ReplaceAll(Name(t, "app"), "-", "_")
	_, err := db.ExecContext(t.Context(), "CREATE SCHEMA "+name)
	fatal(t, err)
	t.Cleanup(func() {
		_, _ = db.ExecContext(context.Background(), "DROP SCHEMA "+name) // PostgreSQL's goes with its database.
	})
	return name
}

// StartPostgres starts a PostgreSQL server; extraConfig is appended to its
// postgresql.conf and wins over ours. Its URL names the database "postgres".
func StartPostgres(t testing.TB, extraConfig string) *Server {
	t.Helper()
	server, err := service.StartPostgres(t.Context(), extraConfig)
	return private(t, server, err)
}

// StartMariaDB starts a MariaDB server; extraConfig is appended to the server's
// section of its configuration and wins over ours. Its URL is a DSN of
// github.com/go-sql-driver/mysql that names the database "delaybridge".
func StartMariaDB(t testing.TB, extraConfig string) *Server {
	t.Helper()
	server, err := service.StartMariaDB(t.Context(), extraConfig)
	return private(t, server, err)
}

func execute(ctx context.Context, t testing.TB, open func(string) (*sql.DB, error), server string, statements ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	db, err := open(server)
	fatal(t, err)
	defer func() { _ = db.Close() }()
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			t.Error(fmt.Errorf("%s: %w", statement, err))
		}
	}
}
