package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
)

// storedAfter reads the next rows of a queue that say that Redis has their message,
// due before an instant, in the order of their due times: what identifies them.
func (d *Database) storedAfter(ctx context.Context, queue string, after cursor, beforeMs int64, most int) (list []*row, err error) {
	err = d.within(ctx, func(tx querier) error {
		return d.storedQuery(queue, after, beforeMs, most).each(ctx, tx, func(rows *sql.Rows) error {
			r := &row{identity: identity{queue: queue}, state: stateStored}
			list = append(list, r)
			return rows.Scan(&r.number, &r.key, &r.id, &r.token, &r.dueMs)
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read stored rows: %w", err)
	}
	return list, nil
}

// storedQuery is the statement of storedAfter. Finished operations are among MySQL's
// entries of that status, before all others.
func (d *Database) storedQuery(queue string, after cursor, beforeMs int64, most int) *query {
	due := "due_ms"
	if !d.dialect.arrays {
		due = "load_ms"
		if after == (cursor{}) {
			after.number = math.MaxInt64
		}
	}
	return d.query("SELECT id, message_key, message_id, token, due_ms").from(byDue).
		add(" WHERE queue = ? AND status = 1 AND op = 0 AND "+due+" < ?", d.text(queue), beforeMs).after(due, after).
		add(" ORDER BY "+due+", id LIMIT ?", most)
}

// freeToPut reads rows whole that are still what they were, and have no pending
// operation: those are the relay's. skipped is how many others there were.
func (d *Database) freeToPut(ctx context.Context, list []*row) (fresh []*row, skipped int, err error) {
	tokens, names, numbers := make(map[int64]string, len(list)), make([]identity, len(list)), make([]int64, len(list))
	for i, r := range list {
		tokens[r.number], names[i], numbers[i] = r.token, r.identity, r.number
	}
	err = d.within(ctx, func(tx querier) error {
		operated, err := d.operated(ctx, tx, names)
		if err != nil {
			return fmt.Errorf("look for operations: %w", err)
		}
		for part := range slices.Chunk(numbers, batchRows) {
			rows, err := d.rows(ctx, tx, d.query("SELECT "+columns+" FROM {t} WHERE id").ids(part).add(" AND status = 1"))
			if err != nil {
				return err
			}
			for _, r := range rows {
				if !operated[r.identity] && tokens[r.number] == r.token {
					fresh = append(fresh, r)
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, 0, fmt.Errorf("read rows: %w", err)
	}
	return fresh, len(list) - len(fresh), nil
}
