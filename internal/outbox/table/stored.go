package table

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
)

// Stored reads the rows whose messages Redis has, as they say, and locks nothing.
type Stored struct{ db *Database }

// After reads the next rows of a queue that say that Redis has their message,
// due before an instant, in the order of their due times: what identifies them, or the
// whole rows, without those that have a pending operation, which are the relay's. all
// is how many there were, last the last one.
func (s Stored) After(
	ctx context.Context, queue string, after Cursor, beforeMs int64, most int, whole bool,
) (list []*Row, all int, last Cursor, err error) {
	what := "id, message_key, message_id, token, due_ms"
	if whole {
		what = columns
	}
	err = s.db.Within(ctx, func(t *Tx) error {
		err := s.storedQuery(what, queue, after, beforeMs, most).each(ctx, t.tx, func(rows *sql.Rows) error {
			r := &Row{Identity: Identity{Queue: queue}, State: StateStored}
			list = append(list, r)
			if whole {
				return r.scan(rows)
			}
			return rows.Scan(&r.Number, &r.Key, &r.ID, &r.Token, &r.DueMs)
		})
		if all, last = len(list), after; err != nil || all == 0 {
			return err
		}
		last = Cursor{list[all-1].DueMs, list[all-1].Number}
		if whole {
			list, err = t.unoperated(ctx, list)
		}
		return err
	})
	if err != nil {
		return nil, 0, after, fmt.Errorf("read stored rows: %w", err)
	}
	return list, all, last, nil
}

// storedQuery is the statement of After. Finished operations are among MySQL's
// entries of that status, before all others.
func (s Stored) storedQuery(what, queue string, after Cursor, beforeMs int64, most int) *query {
	due := "due_ms"
	if !s.db.dialect.arrays {
		due = "load_ms"
		if after == (Cursor{}) {
			after.Number = math.MaxInt64
		}
	}
	return s.db.query("SELECT "+what).from(byDue).
		add(" WHERE queue = ? AND status = 1 AND op = 0 AND "+due+" < ?", s.db.text(queue), beforeMs).after(due, after).
		add(" ORDER BY "+due+", id LIMIT ?", most)
}

// Again reads rows whole that are still what they were, and have no pending
// operation.
func (s Stored) Again(ctx context.Context, list []*Row) (fresh []*Row, err error) {
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

// Complete reads headers and bodies that did not come with their rows.
func (s Stored) Complete(ctx context.Context, rows []*Row) error {
	return s.db.complete(ctx, s.db.db, rows)
}

// Count is how many rows of the queues have their messages in Redis.
func (s Stored) Count(ctx context.Context, queues []string) (n int64, err error) {
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
