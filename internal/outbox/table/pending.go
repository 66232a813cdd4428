package table

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"
)

const (
	// countLimit limits how many rows of a queue are counted.
	countLimit = 100_000
	// foreignLimit is the limit for a queue that this bridge does not have,
	// mostForeign how many such queues are counted.
	foreignLimit, mostForeign = 10_000, 100
)

// PendingRows finds the rows that a relay has to take, and locks nothing: see [Tx] for that.
type PendingRows struct{ db *Database }

// PendingWork is what a queue has pending: operations, and messages' rows that are due
// within the horizon.
type PendingWork struct {
	Operations, Heads bool
	// First is the place before the first pending row, after a full look.
	First Cursor
	// NewOperations and NewHeads are the rows' numbers in their order, after a look for
	// new rows.
	NewOperations, NewHeads []int64
}

// Look returns what the queues have pending, and takes no lock. It reads two entries of an
// index per queue, since most of the time there is nothing. While somebody holds a snapshot
// it walks over all rows taken since, so the caller says how long it may take.
func (p PendingRows) Look(ctx context.Context, queues []string, untilMs int64, within time.Duration) (map[string]PendingWork, error) {
	found := make(map[string]PendingWork, len(queues))
	err := p.lookQuery(queues).eachWithin(ctx, p.db.db, within, func(rows *sql.Rows) error {
		var queue string
		var operation, firstMs sql.NullInt64
		err := rows.Scan(&queue, &operation, &firstMs)
		found[queue] = PendingWork{
			Operations: operation.Valid, Heads: firstMs.Valid && firstMs.Int64 <= untilMs, First: Cursor{Ms: firstMs.Int64},
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for rows: %w", err)
	}
	return found, nil
}

// lookQuery is the statement of Look.
func (p PendingRows) lookQuery(queues []string) *query {
	one := func(q *query, queue string, args ...any) {
		q.add(", (SELECT 1").from(byDue).add(" WHERE queue = "+queue+" AND status = 0 AND load_ms = 0 AND op + 0 > 0 ORDER BY load_ms, id LIMIT 1)", args...).
			add(", (SELECT load_ms").from(byDue).add(" WHERE queue = "+queue+" AND status = 0 ORDER BY load_ms, id LIMIT 1)", args...)
	}
	if p.db.dialect.arrays {
		q := p.db.query("SELECT wanted.queue")
		one(q, "wanted.queue")
		return q.add(" FROM unnest(?::text[]) AS wanted (queue)", queues)
	}
	q := p.db.query("")
	for i, queue := range queues {
		if i > 0 {
			q.add(" UNION ALL ")
		}
		q.add("SELECT ?", queue)
		one(q, "?", []byte(queue))
	}
	return q
}

// Backlog counts rows that could be in Redis, and returns since when the oldest could.
func (p PendingRows) Backlog(ctx context.Context, queues []string, untilMs, horizonMs int64) (count int, oldest time.Duration, err error) {
	err = p.db.Within(ctx, func(t *Tx) error {
		for _, queue := range queues {
			q := p.db.query("SELECT count(*), COALESCE({now} - min(since_ms), 0) FROM (SELECT ").
				add("CASE WHEN op > 0 OR created_ms > load_ms - ? THEN created_ms ELSE load_ms - ? END AS since_ms", horizonMs, horizonMs).from(byDue).
				add(" WHERE queue = ? AND status = 0 AND load_ms <= ? LIMIT ?) b", p.db.text(queue), untilMs, countLimit)
			err := q.each(ctx, t.tx, func(rows *sql.Rows) error {
				var n int
				var age int64
				err := rows.Scan(&n, &age)
				count, oldest = count+n, max(oldest, time.Duration(age)*time.Millisecond)
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, 0, fmt.Errorf("count the backlog: %w", err)
	}
	return count, oldest, nil
}

// Foreign counts the rows that could be in Redis of queues other than the listed
// ones; only some of them if there are many. It goes from one queue to the next
// by the index, so that rows of the listed queues cost nothing.
func (p PendingRows) Foreign(ctx context.Context, queues []string, untilMs int64) (counts map[string]int, err error) {
	counts = map[string]int{}
	err = p.db.Within(ctx, func(t *Tx) error {
		for last := ""; len(counts) < mostForeign; {
			next, found := "", false
			q := p.db.query("SELECT queue").from(byDue).add(" WHERE queue > ?", p.db.text(last))
			if p.db.dialect.arrays { // Its index has nothing but pending rows.
				q.add(" AND status = 0")
			}
			err := q.add(" ORDER BY queue LIMIT 1").each(ctx, t.tx, func(rows *sql.Rows) error { found = true; return rows.Scan(&next) })
			if err != nil || !found {
				return err
			}
			last = next
			if slices.Contains(queues, next) {
				continue
			}
			count := p.db.query("SELECT count(*) FROM (SELECT 1").from(byDue).
				add(" WHERE queue = ? AND status = 0 AND load_ms <= ? LIMIT ?) b", p.db.text(next), untilMs, foreignLimit)
			var n int
			if err := count.each(ctx, t.tx, func(rows *sql.Rows) error { return rows.Scan(&n) }); err != nil {
				return err
			}
			if n > 0 {
				counts[next] = n
			}
		}
		return nil
	})
	return counts, err
}
