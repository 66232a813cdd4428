// Package sqldb reads the DSNs of the databases that have an outbox, and opens
// them: the one place that knows what their drivers want to be told.
package sqldb

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
)

// connectTimeout bounds a connect where the DSN sets no limit.
const connectTimeout = 5 * time.Second

// What a bad DSN is answered with. The drivers' own texts may show parts of it,
// and it holds a password.
var (
	errPostgres = errors.New("is not a PostgreSQL DSN: give postgres://user:password@host:5432/name, special characters percent-encoded")
	errMySQL    = errors.New("is not a MySQL DSN: give user:password@tcp(host:3306)/name")
	errDatabase = errors.New("names no database")
	errDriver   = errors.New("is for an unknown driver: give postgres or mysql")
)

// Check returns the problem of a DSN, in words that follow the key's name
// and hold no secret. It connects to nothing.
func Check(driver schema.Dialect, dsn string) error {
	switch driver {
	case schema.Postgres:
		_, err := Postgres(dsn)
		return err
	case schema.MySQL:
		_, err := MySQL(dsn)
		return err
	default:
		return errDriver
	}
}

// Open is [Source.Open] of a DSN that never changes.
func Open(driver schema.Dialect, dsn string) (*sql.DB, error) {
	if err := Check(driver, dsn); err != nil {
		return nil, err
	}
	return Plain(dsn).Open(driver)
}

// Postgres reads a DSN of PostgreSQL. The error is that of [Check].
func Postgres(dsn string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		if missing, ok := errors.AsType[*fs.PathError](err); ok {
			return nil, fmt.Errorf("names a file that cannot be read: %w", missing)
		}
		return nil, errPostgres
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "delaybridge"
	}
	return config, nil
}

// sessionMySQL is how our sessions of MySQL are, whatever the server or the DSN says. With
// autocommit off, a look outside of a transaction would begin one that is never ended: it sees
// the same rows forever, and what it writes is never committed.
var sessionMySQL = map[string]string{
	"autocommit":       "1",
	"completion_type":  "0", // Else COMMIT begins the next transaction.
	"sql_mode":         "'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'",
	"sql_safe_updates": "0",
	"sql_select_limit": "18446744073709551615",
}

// MySQL reads a DSN of MySQL or MariaDB. The error is that of [Check].
func MySQL(dsn string) (*mysql.Config, error) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, errMySQL
	}
	if config.DBName == "" {
		return nil, errDatabase
	}
	if config.Timeout == 0 {
		config.Timeout = connectTimeout
	}
	if config.Params == nil {
		config.Params = map[string]string{}
	}
	maps.Copy(config.Params, sessionMySQL)
	config.ParseTime = true
	config.Logger = &mysql.NopLogger{} // What it says, the errors say too.
	return config, nil
}
