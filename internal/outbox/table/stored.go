package table

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
)

// StoredRows reads the rows that say that Redis has their messages, and locks nothing.
type StoredRows struct{ db *Database }

// Page is a page of [StoredRows.After].
type Page struct {
	Rows []*Row
	// All counts all rows read; Rows lacks those with a pending operation.
	All int
	// Last is where the next page begins, End that there is none.
	Last Cursor
	End  bool
}

// perRow is how many entries of an index to read per wanted row where most entries
// are finished operations.
const perRow = 10

// Behind returns the cursor after the rows that are due at 0. In MySQL's index these are
// among the finished operations, so reading them costs as much as there are operations.
// It is the beginning if there is no such place.
func (s StoredRows) Behind() Cursor {
	if s.db.dialect.arrays {
		return Cursor{}
	}
	return Cursor{Number: math.MaxInt64}
}

// After reads at most that many of the next rows of a queue that say that Redis has their
// message and are due before an instant, in the order of their due times: only their
// identities, or whole rows. It leaves out rows with a pending operation, which are the
// relay's. Up to [StoredRows.Behind] a page may have few rows without being the last.
func (s StoredRows) After(ctx context.Context, queue string, after Cursor, beforeMs int64, most int, whole bool) (page Page, err error) {
	what := "id, message_key, message_id, token, due_ms, op"
	if whole {
		what = columns
	}
	behind := s.Behind()
	mixed := after.Ms == 0 && after.Number < behind.Number
	err = s.db.Within(ctx, func(t *Tx) error {
		entries, q := most, s.storedQuery(what, queue, after, beforeMs, most)
		if mixed {
			if !whole {
				entries = perRow * most
			}
			q = s.mixedQuery(what, queue, after, entries)
		}
		read := 0
		page.Last = after
		err := q.each(ctx, t.tx, func(rows *sql.Rows) error {
			r := &Row{Identity: Identity{Queue: queue}, State: StateStored}
			var err error
			if whole {
				err = r.scan(rows)
			} else {
				err = rows.Scan(&r.Number, &r.Key, &r.ID, &r.Token, &r.DueMs, &r.Verb)
			}
			read++
			switch {
			case len(page.Rows) == most: // The next page begins there.
			case r.Verb == VerbSchedule:
				page.Rows, page.Last = append(page.Rows, r), Cursor{r.DueMs, r.Number}
			default:
				page.Last = Cursor{0, r.Number}
			}
			return err
		})
		page.All = len(page.Rows)
		switch {
		case err != nil:
			return err
		case mixed && read < entries && page.All < most:
			page.Last = behind
		case !mixed:
			page.End = read < most
		}
		if whole && page.All > 0 {
			page.Rows, err = t.unoperated(ctx, page.Rows)
		}
		return err
	})
	if err != nil {
		return Page{}, fmt.Errorf("read stored rows: %w", err)
	}
	return page, nil
}

// storedQuery is the statement of After.
func (s StoredRows) storedQuery(what, queue string, after Cursor, beforeMs int64, most int) *query {
	due := "due_ms"
	if !s.db.dialect.arrays {
		due = "load_ms"
	}
	return s.db.query("SELECT "+what).from(byDue).
		add(" WHERE queue = ? AND status = 1 AND op = 0 AND "+due+" < ?", s.db.text(queue), beforeMs).after(due, after).
		add(" ORDER BY "+due+", id LIMIT ?", most)
}

// mixedQuery reads that many entries up to [StoredRows.Behind], finished operations
// included.
func (s StoredRows) mixedQuery(what, queue string, after Cursor, entries int) *query {
	return s.db.query("SELECT "+what).from(byDue).
		add(" WHERE queue = ? AND status = 1 AND load_ms = 0 AND id > ? ORDER BY load_ms, id LIMIT ?", s.db.text(queue), after.Number, entries)
}

// Again reads whole rows that have not changed and have no pending operation.
func (s StoredRows) Again(ctx context.Context, list []*Row) (fresh []*Row, err error) {
	tokens, numbers := make(map[int64]string, len(list)), make([]int64, len(list))
	for i, r := range list {
		tokens[r.Number], numbers[i] = r.Token, r.Number
	}
	err = s.db.Within(ctx, func(t *Tx) error {
		for part := range slices.Chunk(numbers, BatchRows) {
			rows, err := s.db.rows(ctx, t.tx, s.db.query("SELECT "+columns+" FROM {t} WHERE id").ids(part).add(" AND status = 1"))
			if err != nil {
				return err
			}
			fresh = append(fresh, slices.DeleteFunc(rows, func(r *Row) bool { return tokens[r.Number] != r.Token })...)
		}
		if len(fresh) == 0 {
			return nil
		}
		fresh, err = t.unoperated(ctx, fresh)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read rows: %w", err)
	}
	return fresh, nil
}

// LockLive locks those of the rows that have not changed, live and without a pending
// operation, and skips rows that others have locked. It reads them whole.
func (t *Tx) LockLive(ctx context.Context, list []*Row) (fresh []*Row, err error) {
	tokens, numbers := make(map[int64]string, len(list)), make([]int64, len(list))
	for i, r := range list {
		tokens[r.Number], numbers[i] = r.Token, r.Number
	}
	slices.Sort(numbers)
	q := t.db.query("SELECT " + columns).from(byNumber).add(" WHERE id").ids(numbers).add(" AND op = 0 AND status IN (0, 1) ORDER BY id FOR UPDATE SKIP LOCKED")
	if fresh, err = t.db.rows(ctx, t.tx, q); err != nil {
		return nil, fmt.Errorf("lock rows: %w", err)
	}
	fresh = slices.DeleteFunc(fresh, func(r *Row) bool { return tokens[r.Number] != r.Token })
	if len(fresh) == 0 {
		return nil, nil
	}
	return t.unoperated(ctx, fresh)
}

// Complete reads headers and bodies that did not come with their rows.
func (s StoredRows) Complete(ctx context.Context, rows []*Row) error {
	return s.db.complete(ctx, s.db.db, rows)
}

// Count returns how many rows of the queues have their messages in Redis.
func (s StoredRows) Count(ctx context.Context, queues []string) (n int64, err error) {
	for _, queue := range queues {
		var count int64
		q := s.db.query("").add("SELECT count(*) FROM {t} WHERE queue = ? AND status = 1 AND op = 0", s.db.text(queue))
		if err := q.each(ctx, s.db.db, func(rows *sql.Rows) error { return rows.Scan(&count) }); err != nil {
			return 0, fmt.Errorf("count rows: %w", err)
		}
		n += count
	}
	return n, nil
}
