// Package pgxtx lets package outbox write in a transaction of pgx:
//
//	ref, err := box.Schedule(ctx, pgxtx.Wrap(tx), "orders", message, delay.After(time.Hour))
//
// It is a package of its own so that only its users import pgx.
package pgxtx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Tx is a transaction of pgx in the form that package outbox takes. Like the
// transaction itself, it is for one goroutine at a time.
type Tx struct {
	tx pgx.Tx
}

// Wrap wraps a transaction. The caller commits it or rolls it back.
func Wrap(tx pgx.Tx) *Tx { return &Tx{tx: tx} }

// ExecContext runs a statement.
func (t *Tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tag, err := t.tx.Exec(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return result{tag}, nil
}

// commitLimit bounds [Tx.Commit], which has no context.
const commitLimit = 30 * time.Second

// Commit commits the transaction. Package outbox does not call it; pgx.Tx.Commit, which
// takes a context, does the same.
func (t *Tx) Commit() error {
	ctx, cancel := context.WithTimeout(context.Background(), commitLimit) //nolint:forbidigo // The method of database/sql has no context.
	defer cancel()
	return t.tx.Commit(ctx)
}

// ScanRow reads one row; the error is [sql.ErrNoRows] if there is none.
func (t *Tx) ScanRow(ctx context.Context, query string, args []any, dest ...any) error {
	err := t.tx.QueryRow(ctx, query, args...).Scan(dest...)
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("%w: %w", sql.ErrNoRows, err)
	}
	return err
}

type result struct{ tag pgconn.CommandTag }

var errNoID = errors.New("PostgreSQL tells no last inserted id")

func (r result) LastInsertId() (int64, error) { return 0, errNoID }
func (r result) RowsAffected() (int64, error) { return r.tag.RowsAffected(), nil }
