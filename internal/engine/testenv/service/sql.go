package service

import (
	"database/sql"
	"fmt"
	"slices"
)

// OpenPostgres opens the database by the driver that the program has linked, pgx' or
// lib/pq. This package links none, so that whoever requires it requires none.
func OpenPostgres(url string) (*sql.DB, error) { return open(url, "pgx", "postgres") }

// OpenMariaDB opens the database by github.com/go-sql-driver/mysql, which the program
// must have linked.
func OpenMariaDB(dsn string) (*sql.DB, error) { return open(dsn, "mysql") }

func open(dsn string, drivers ...string) (*sql.DB, error) {
	linked := sql.Drivers()
	for _, driver := range drivers {
		if slices.Contains(linked, driver) {
			return sql.Open(driver, dsn)
		}
	}
	return nil, fmt.Errorf("the program links no driver of %q: import one in its test", drivers)
}
