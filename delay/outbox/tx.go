package outbox

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
)

// Tx is the caller's transaction: a [*sql.Tx], a pgx.Tx wrapped by package pgxtx,
// or another library's equivalent. The caller commits it or rolls it back.
//
// Commit is never called here. It is in the interface so that a [*sql.DB], which
// lacks it, does not compile: a row written outside the transaction would remain
// although the transaction is rolled back.
//
// In MySQL, [Outbox.Cancel] and [Outbox.Reschedule] also need the method
// QueryRowContext of those types, and without it [Outbox.Schedule] locks more: see
// the package's section on locks.
type Tx interface {
	DB
	Commit() error
}

// DB is what [Outbox.Get] reads from: a [Tx], which sees its own writes, or a [*sql.DB],
// which sees what was committed. Get also needs the method QueryRowContext of those
// types, or the equivalent of pgxtx.
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

// bind writes the placeholders of the dialect. No statement has a question mark
// for anything else.
func (o *Outbox) bind(query string) string {
	if o.dialect != PostgreSQL {
		return query
	}
	const digits = 4 // in the number of an argument
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

// now reads the database's clock in milliseconds since 1970, rounded up. Both functions
// ignore the session's time zone, and the time at which the transaction began.
func (o *Outbox) now() string {
	if o.dialect == PostgreSQL {
		return "CAST(ceil(extract(epoch FROM clock_timestamp()) * 1000) AS bigint)"
	}
	return "((TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) + 999) DIV 1000)"
}

// text, number and binary are placeholders. PostgreSQL must be told their types
// if it cannot infer them from a column.
func (o *Outbox) text() string   { return o.cast("text") }
func (o *Outbox) number() string { return o.cast("bigint") }
func (o *Outbox) binary() string { return o.cast("bytea") }

func (o *Outbox) cast(to string) string {
	if o.dialect == PostgreSQL {
		return "CAST(? AS " + to + ")"
	}
	return "?"
}

// object is the placeholder of a JSON object given as text.
func (o *Outbox) object() string {
	if o.dialect == PostgreSQL {
		return "CAST(CAST(? AS text) AS jsonb)"
	}
	return "?"
}
