package table

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
)

// Tx is a transaction that locks rows and changes them. Its locks skip rows that others
// hold, so it never waits for a lock; it may wait for Redis, since nobody waits for it.
// It is used by one goroutine at a time.
type Tx struct {
	db *Database
	tx *sql.Tx
}

// Work is a batch to be taken.
type Work struct {
	Queue string
	// Operations says that the queue has pending operations.
	Operations bool
	// UntilMs is the latest due time of rows to take.
	UntilMs int64
	After   Cursor
	// Numbers, if not nil, are the rows to take; UntilMs and After are then ignored.
	Numbers []int64
	// Blocked are the numbers of rows to leave out.
	Blocked []int64
	Most    int
}

// LockHeads locks a batch of a queue's pending messages' rows that are due within the
// horizon. It skips those that another transaction has locked, and blocked ones. Rows
// with pending operations are left to [Tx.LockOperations]; otherwise two lanes might
// hold one half each of an identity, again and again, and a message be published that
// its own transaction has cancelled.
func (t *Tx) LockHeads(ctx context.Context, w Work) ([]*Row, error) {
	rows, err := t.db.rows(ctx, t.tx, t.headsQuery(w))
	if err != nil {
		return nil, fmt.Errorf("lock rows: %w", err)
	}
	if w.Operations || len(rows) == 0 {
		return rows, nil
	}
	// Some may have come since the look, perhaps with their messages.
	return t.unoperated(ctx, rows)
}

// headsQuery is the statement of LockHeads.
func (t *Tx) headsQuery(w Work) *query {
	q, order := t.numbered(w), "id"
	if w.Numbers == nil {
		q, order = t.db.query("SELECT "+columns).from(byDue).add(" WHERE queue = ? AND status = 0 AND load_ms <= ?", t.db.text(w.Queue), w.UntilMs), "load_ms, id"
		if w.After != (Cursor{}) {
			q.after("load_ms", w.After)
		}
	}
	q.add(" AND op + 0 <= 0") // Operations below 0 are refused with them, since no other query takes them.
	q.without(w.Blocked)
	if w.Operations {
		q.withoutOperation()
	}
	return q.add(" ORDER BY "+order+" LIMIT ? FOR UPDATE SKIP LOCKED", w.Most)
}

// without appends a condition that leaves out these rows.
func (q *query) without(numbers []int64) {
	if len(numbers) > 0 {
		q.add(" AND NOT id + 0").ids(numbers)
	}
}

// numbered begins a statement that reads pending rows by their numbers alone.
func (t *Tx) numbered(w Work) *query {
	return t.db.query("SELECT " + columns).from(byNumber).add(" WHERE id").ids(w.Numbers).add(" AND status + 0 = 0")
}

// LockOperations locks a batch of a queue's pending cancels and reschedules.
func (t *Tx) LockOperations(ctx context.Context, w Work) ([]*Row, error) {
	rows, err := t.db.rows(ctx, t.tx, t.operationsQuery(w))
	if err != nil {
		return nil, fmt.Errorf("lock operations: %w", err)
	}
	return rows, nil
}

// operationsQuery is the statement of LockOperations.
func (t *Tx) operationsQuery(w Work) *query {
	q, order := t.numbered(w), "id"
	if w.Numbers == nil {
		q, order = t.db.query("SELECT "+columns).from(byDue).
			add(" WHERE queue = ? AND status = 0 AND load_ms = 0 AND id > ?", t.db.text(w.Queue), w.After.Number), "load_ms, id"
	}
	q.without(w.Blocked)
	return q.add(" AND op + 0 > 0 ORDER BY "+order+" LIMIT ? FOR UPDATE SKIP LOCKED", w.Most)
}

// Note records on reschedules that they may be tried once this is committed: after that no
// producer changes them, see docs/model/Merge.tla.
func (t *Tx) Note(ctx context.Context, numbers []int64) error {
	return t.writeTo(ctx, numbers, t.db.query("UPDATE {t}").hinted(byNumber).add(" SET due_ms = revision, revision = 0 WHERE revision > 0 AND id"))
}

// Complete reads headers and bodies that did not come with their rows.
func (t *Tx) Complete(ctx context.Context, rows []*Row) error {
	return t.db.complete(ctx, t.tx, rows)
}

func (d *Database) complete(ctx context.Context, tx querier, rows []*Row) error {
	wanted := map[int64]*Row{}
	var numbers []int64
	for _, r := range rows {
		if !r.Content.whole && !r.IsHuge() {
			wanted[r.Number] = r
			numbers = append(numbers, r.Number)
		}
	}
	for chunk := range slices.Chunk(numbers, 50) {
		q := d.query("SELECT id, {headers}, body FROM {t} WHERE id").ids(chunk)
		err := q.each(ctx, tx, func(rows *sql.Rows) error {
			var number int64
			var r Row
			if err := rows.Scan(&number, &r.Content.Headers, &r.Content.Body); err != nil {
				return err
			}
			if w := wanted[number]; w != nil {
				w.Content.Headers, w.Content.Body, w.Content.whole = r.Content.Headers, r.Content.Body, true
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("read bodies: %w", err)
		}
	}
	return nil
}
