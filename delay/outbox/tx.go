package outbox

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
)

// Tx is a transaction of the caller's: a [*sql.Tx], what package pgxtx makes of a
// pgx.Tx, or what other libraries have in their place. The caller commits it or
// rolls it back.
//
// Commit is never called here. It is in the interface because a transaction has it
// and a [*sql.DB] has not: a row that is written outside of the transaction is there
// although that is rolled back, and so a *sql.DB does not compile.
//
// In MySQL [Outbox.Cancel] and [Outbox.Reschedule] need the method QueryRowContext of
// those types, too. Without it, [Outbox.Schedule] locks more in MySQL: see the
// package's section on locks.
type Tx interface {
	DB
	Commit() error
}

// DB is what [Outbox.Get] reads through: a [Tx], which sees what it has written itself,
// or a [*sql.DB], which sees what was committed. Get needs the method QueryRowContext of
// those types, too, or that of pgxtx in its place.
type DB interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// The two ways to read a row: that of database/sql, and that of pgxtx.
type (
	rowQuerier interface {
		QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	}
	rowScanner interface {
		ScanRow(ctx context.Context, query string, args []any, dest ...any) error
	}
)

// canRead reports whether rows can be read through the transaction.
func canRead(tx DB) bool {
	switch tx.(type) {
	case rowQuerier, rowScanner:
		return true
	default:
		return false
	}
}

// scanRow reads one row; [sql.ErrNoRows] if there is none.
func (o *Outbox) scanRow(ctx context.Context, tx DB, query string, args []any, dest ...any) error {
	query = o.bind(query)
	switch tx := tx.(type) {
	case rowScanner:
		return tx.ScanRow(ctx, query, args, dest...)
	case rowQuerier:
		return tx.QueryRowContext(ctx, query, args...).Scan(dest...)
	default:
		return errNoRead
	}
}

// exec runs a statement and returns how many rows it wrote.
func (o *Outbox) exec(ctx context.Context, tx Tx, query string, args []any) (int64, error) {
	result, err := tx.ExecContext(ctx, o.bind(query), args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// wake tells the relays that wait for a notification.
func (o *Outbox) wake(ctx context.Context, tx Tx) error {
	if !o.notify {
		return nil
	}
	_, err := o.exec(ctx, tx, "SELECT pg_notify(?, '')", []any{o.name()})
	return err
}

// bind writes the placeholders as the dialect has them. No statement has a
// question mark for anything else.
func (o *Outbox) bind(query string) string {
	if o.dialect != PostgreSQL {
		return query
	}
	const digits = 4 // of the number of an argument
	bound := make([]byte, 0, len(query)+digits*strings.Count(query, "?"))
	for number := int64(1); ; number++ {
		before, after, found := strings.Cut(query, "?")
		bound = append(bound, before...)
		if !found {
			return string(bound)
		}
		bound = strconv.AppendInt(append(bound, '$'), number, 10)
		query = after
	}
}

// now is the database's clock in milliseconds since 1970, rounded up. Both
// functions ignore the session's time zone, and the start of the transaction.
func (o *Outbox) now() string {
	if o.dialect == PostgreSQL {
		return "CAST(ceil(extract(epoch FROM clock_timestamp()) * 1000) AS bigint)"
	}
	return "((TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) + 999) DIV 1000)"
}

// text, number and binary are placeholders. PostgreSQL must be told their types
// where it cannot see a column.
func (o *Outbox) text() string   { return o.cast("text") }
func (o *Outbox) number() string { return o.cast("bigint") }
func (o *Outbox) binary() string { return o.cast("bytea") }

func (o *Outbox) cast(to string) string {
	if o.dialect == PostgreSQL {
		return "CAST(? AS " + to + ")"
	}
	return "?"
}

// object is the placeholder of a JSON object that is given as text.
func (o *Outbox) object() string {
	if o.dialect == PostgreSQL {
		return "CAST(CAST(? AS text) AS jsonb)"
	}
	return "?"
}
