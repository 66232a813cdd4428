package table

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"
)

// listMost is how many rows one statement of [Listing.List] and
// [Listing.Show] returns at most.
const listMost = 1000

// Entry is a row for display, without headers and body.
type Entry struct {
	// Number is the revision: later operations have higher ones.
	Number         int64
	Queue, Key, ID string
	Topic          string
	// Verb is what it asks for, State how far it has come.
	Verb, State string
	Reason      string
	// DueAt is zero for a cancel, FinishedAt for a row that has not ended.
	DueAt, CreatedAt, FinishedAt time.Time
	// Age is how long ago it was written, by the database's clock.
	Age time.Duration
	// Size is the size of headers and body in bytes.
	Size int64
}

// Listing reads rows for operators.
type Listing struct{ db *Database }

// Filter says which rows are listed. The zero value means all.
type Filter struct {
	Queue, State string
	// After is the number of the last row already read.
	After int64
	// Limit is how many are returned, at most 1,000.
	Limit int
}

// States returns the names of the states of rows.
func States() []string { return slices.Clone(stateNames[:]) }

var errState = errors.New("unknown state")

const entryColumns = "id, queue, message_key, message_id, op, status, topic, CASE WHEN op = 2 AND revision > 0 THEN revision ELSE due_ms END, created_ms, finished_ms, reason, {size}, {now}"

// List returns rows, the oldest first. It takes no locks, and reads no bodies.
func (l Listing) List(ctx context.Context, f Filter) ([]Entry, error) {
	q := l.db.query("SELECT "+entryColumns+" FROM {t}").add(" WHERE id > ?", f.After)
	if f.State != "" {
		at := slices.Index(stateNames[:], f.State)
		if at < 0 {
			return nil, fmt.Errorf("%w: %q", errState, f.State)
		}
		q.add(" AND status = ?", int64(at))
	}
	if f.Queue != "" {
		q.add(" AND queue = ?", f.Queue)
	}
	list, err := l.entries(ctx, q.add(" ORDER BY id LIMIT ?", min(f.Limit, listMost)))
	if err != nil {
		return nil, fmt.Errorf("list rows: %w", err)
	}
	return list, nil
}

// Show returns the rows of a message in the order of their revisions, at most
// 1,000; if key is nil, those of all messages of that id.
func (l Listing) Show(ctx context.Context, queue, id string, key *string) ([]Entry, error) {
	is, args := " WHERE queue = ? AND message_id = ?", []any{l.db.text(queue), l.db.text(id)}
	if key != nil {
		is, args = " WHERE queue = ? AND message_key = ? AND message_id = ?", []any{l.db.text(queue), l.db.text(*key), l.db.text(id)}
	}
	// Live messages and all other rows have an index each.
	q := l.db.query("SELECT * FROM (SELECT "+entryColumns+" FROM {t}").add(is+" AND op = 0 AND status IN (0, 1)", args...).
		add(" UNION ALL (SELECT "+entryColumns+" FROM {t}").add(is+" AND (op > 0 OR status > 1)", args...).
		add(" ORDER BY id LIMIT ?)) list ORDER BY id LIMIT ?", listMost, listMost)
	list, err := l.entries(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("show rows: %w", err)
	}
	return list, nil
}

func (l Listing) entries(ctx context.Context, q *query) ([]Entry, error) {
	var list []Entry
	err := q.each(ctx, l.db.db, func(rows *sql.Rows) error {
		var e Entry
		var op Verb
		var status State
		var due, created, now int64
		var finished sql.NullInt64
		err := rows.Scan(&e.Number, &e.Queue, &e.Key, &e.ID, &op, &status, &e.Topic, &due, &created, &finished, &e.Reason, &e.Size, &now)
		e.Verb, e.State, e.CreatedAt = op.String(), status.String(), time.UnixMilli(created)
		e.Age = time.Duration(max(0, now-created)) * time.Millisecond
		if op != VerbCancel {
			e.DueAt = time.UnixMilli(due)
		}
		if finished.Valid {
			e.FinishedAt = time.UnixMilli(finished.Int64)
		}
		list = append(list, e)
		return err
	})
	return list, err
}
