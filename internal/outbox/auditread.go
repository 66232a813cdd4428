package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
)

// storedAfter reads the next rows of a queue that say that Redis has their message,
// due before an instant, in the order of their due times: what identifies them, or the
// whole rows, without those that have a pending operation, which are the relay's. all
// is how many there were, last the last one.
func (d *Database) storedAfter(
	ctx context.Context, queue string, after cursor, beforeMs int64, most int, whole bool,
) (list []*row, all int, last cursor, err error) {
	what := "id, message_key, message_id, token, due_ms"
	if whole {
		what = columns
	}
	err = d.within(ctx, func(tx querier) error {
		err := d.storedQuery(what, queue, after, beforeMs, most).each(ctx, tx, func(rows *sql.Rows) error {
			r := &row{identity: identity{queue: queue}, state: stateStored}
			list = append(list, r)
			if whole {
				return r.scan(rows)
			}
			return rows.Scan(&r.number, &r.key, &r.id, &r.token, &r.dueMs)
		})
		if all, last = len(list), after; err != nil || all == 0 {
			return err
		}
		last = cursor{list[all-1].dueMs, list[all-1].number}
		if whole {
			list, err = d.unoperated(ctx, tx, list)
		}
		return err
	})
	if err != nil {
		return nil, 0, after, fmt.Errorf("read stored rows: %w", err)
	}
	return list, all, last, nil
}

// unoperated are the rows that have no pending operation.
func (d *Database) unoperated(ctx context.Context, tx querier, rows []*row) ([]*row, error) {
	names := make([]identity, len(rows))
	for i, r := range rows {
		names[i] = r.identity
	}
	operated, err := d.operated(ctx, tx, names)
	if err != nil {
		return nil, fmt.Errorf("look for operations: %w", err)
	}
	return slices.DeleteFunc(rows, func(r *row) bool { return operated[r.identity] }), nil
}

// storedQuery is the statement of storedAfter. Finished operations are among MySQL's
// entries of that status, before all others.
func (d *Database) storedQuery(what, queue string, after cursor, beforeMs int64, most int) *query {
	due := "due_ms"
	if !d.dialect.arrays {
		due = "load_ms"
		if after == (cursor{}) {
			after.number = math.MaxInt64
		}
	}
	return d.query("SELECT "+what).from(byDue).
		add(" WHERE queue = ? AND status = 1 AND op = 0 AND "+due+" < ?", d.text(queue), beforeMs).after(due, after).
		add(" ORDER BY "+due+", id LIMIT ?", most)
}

// freeToPut reads rows whole that are still what they were, and have no pending
// operation.
func (d *Database) freeToPut(ctx context.Context, list []*row) (fresh []*row, err error) {
	tokens, numbers := make(map[int64]string, len(list)), make([]int64, len(list))
	for i, r := range list {
		tokens[r.number], numbers[i] = r.token, r.number
	}
	err = d.within(ctx, func(tx querier) error {
		for part := range slices.Chunk(numbers, batchRows) {
			rows, err := d.rows(ctx, tx, d.query("SELECT "+columns+" FROM {t} WHERE id").ids(part).add(" AND status = 1"))
			if err != nil {
				return err
			}
			fresh = append(fresh, slices.DeleteFunc(rows, func(r *row) bool { return tokens[r.number] != r.token })...)
		}
		if len(fresh) == 0 {
			return nil
		}
		fresh, err = d.unoperated(ctx, tx, fresh)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read rows: %w", err)
	}
	return fresh, nil
}
