package table

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
)

// errUnfit marks faults that waiting does not cure.
var errUnfit = errors.New("database is unfit")

// IsUnfit reports whether an error says that the database is too old, or lacks
// the tables of the outbox.
func IsUnfit(err error) bool { return errors.Is(err, errUnfit) }

// The oldest versions: PostgreSQL has generated columns since 12, MySQL has
// expressions as defaults since 8.0.13, MariaDB has SKIP LOCKED since 10.6.
var (
	oldestMySQL   = [3]int{8, 0, 13}
	oldestMariaDB = [3]int{10, 6, 0}
)

const oldestPostgres = 120000

// Check asks the database for its version and its tables. An error is about the
// connection, or [IsUnfit].
func (d *Database) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	var version string
	ask := "SELECT VERSION()"
	if d.dialect.name == schema.Postgres {
		ask = "SHOW server_version_num"
	}
	if err := d.db.QueryRowContext(ctx, ask).Scan(&version); err != nil {
		return fmt.Errorf("ask for the version: %w", err)
	}
	if err := d.dialect.checkVersion(version); err != nil {
		return err
	}
	q := d.query("SELECT " + columns + ", load_ms, finished_ms, reason FROM {t} WHERE 1 = 0")
	if err := q.each(ctx, d.db, func(*sql.Rows) error { return nil }); err != nil {
		return d.schemaError(err)
	}
	q = d.query("SELECT queue, life, seen_ms FROM {t}_lives WHERE 1 = 0")
	if err := q.each(ctx, d.db, func(*sql.Rows) error { return nil }); err != nil {
		return d.schemaError(err)
	}
	have, err := d.indexes(ctx)
	switch name := d.name + "_" + string(d.dialect.newest); {
	case err != nil:
		return fmt.Errorf("ask for the indexes: %w", err)
	case !have[name]: // Without it PostgreSQL would read the whole table for each message; MySQL refuses.
		return fmt.Errorf("%w: index %s of table %s is missing or not ready; %s", errUnfit, name, d.table, migrateUp)
	}
	return nil
}

const migrateUp = `run "bridge outbox migrate up --config FILE"`

func (d *dialect) checkVersion(version string) error {
	switch {
	case d.name == schema.Postgres:
		if n, err := strconv.Atoi(version); err != nil || n < oldestPostgres {
			return fmt.Errorf("%w: PostgreSQL %s, needed is 12 or later", errUnfit, version)
		}
	case strings.Contains(strings.ToLower(version), "mariadb"):
		if !isAtLeast(version, oldestMariaDB) {
			return fmt.Errorf("%w: MariaDB %s, needed is 10.6 or later", errUnfit, version)
		}
	case !isAtLeast(version, oldestMySQL):
		return fmt.Errorf("%w: MySQL %s, needed is 8.0.13 or later", errUnfit, version)
	}
	return nil
}

// isAtLeast reads the first three numbers of a version.
func isAtLeast(version string, oldest [3]int) bool {
	// For old drivers of replication, MariaDB puts "5.5.5-" before its version.
	version = strings.TrimPrefix(version, "5.5.5-")
	fields := strings.FieldsFunc(version, func(r rune) bool { return r < '0' || r > '9' })
	for i, least := range oldest {
		if i >= len(fields) {
			return false
		}
		n, err := strconv.Atoi(fields[i])
		if err != nil {
			return false
		}
		if n != least {
			return n > least
		}
	}
	return true
}

// schemaError tells a missing table or column from a lost connection.
func (d *Database) schemaError(err error) error {
	var pg *pgconn.PgError
	var my *mysql.MySQLError
	missing := false
	switch {
	case errors.As(err, &pg):
		missing = pg.Code == "42P01" || pg.Code == "42703" || pg.Code == "3F000" // table, column, schema
	case errors.As(err, &my):
		missing = my.Number == 1146 || my.Number == 1054 || my.Number == 1049 // table, column, schema
	}
	if missing {
		return fmt.Errorf("%w: table %s is missing or of another version; %s: %w", errUnfit, d.table, migrateUp, err)
	}
	return fmt.Errorf("check the tables: %w", err)
}

// IsDeadlock reports whether the database ended a transaction so that others can
// continue, or because another one has committed a message of the same identity.
func IsDeadlock(err error) bool {
	var pg *pgconn.PgError
	var my *mysql.MySQLError
	switch {
	case errors.As(err, &pg):
		return pg.Code == "40P01" || pg.Code == "40001" || pg.Code == "55P03" || pg.Code == "23505" // deadlock, serialization, lock timeout, a live message
	case errors.As(err, &my):
		return my.Number == 1213 || my.Number == 1205 || my.Number == 1062 // deadlock, lock timeout, a live message
	}
	return false
}

// isReadOnly reports whether a PostgreSQL server takes no writes: it is a standby.
// MySQL's driver drops such connections by itself.
func isReadOnly(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "25006"
}
