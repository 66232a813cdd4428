package table

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
)

// mostNew is how many rows a look for new ones returns: of those that were written, and
// of those of each queue that came within the horizon.
const mostNew = 10_000

// Floor is the state of the table some time ago. New rows are above it: a written row has a
// higher number, and a row that the horizon has reached is due later. A row that was
// committed late may be new although it is below the floor.
type Floor struct{ Number, UntilMs int64 }

// New returns what the queues have pending above the floor, and takes no lock.
// However much was taken before, it does not walk over rows below. newest is the
// highest number of a row.
func (p PendingRows) New(ctx context.Context, queues []string, floor Floor, untilMs int64) (found map[string]PendingWork, newest int64, err error) {
	found, newest = map[string]PendingWork{}, floor.Number
	err = p.newQuery(queues, floor, untilMs).each(ctx, p.db.db, func(rows *sql.Rows) error {
		var number sql.NullInt64
		var queue string
		var verb Verb
		if err := rows.Scan(&number, &queue, &verb); err != nil {
			return err
		}
		w := found[queue]
		switch {
		case queue == "":
			newest = max(newest, number.Int64)
			return nil
		case verb <= VerbSchedule: // see headsQuery
			w.NewHeads = append(w.NewHeads, number.Int64)
		default:
			w.NewOperations = append(w.NewOperations, number.Int64)
		}
		found[queue] = w
		return nil
	})
	if err != nil {
		return nil, 0, fmt.Errorf("look for new rows: %w", err)
	}
	for _, w := range found {
		slices.Sort(w.NewOperations)
		slices.Sort(w.NewHeads)
	}
	return found, newest, nil
}

// newQuery is the statement of New: the written rows, the rows of each queue that the
// horizon has reached, and the highest number. PostgreSQL must find the written rows
// by number alone, so no other column here has an index.
func (p PendingRows) newQuery(queues []string, floor Floor, untilMs int64) *query {
	const what = "SELECT id, queue, op"
	reached := func(q *query, queue string, args ...any) {
		q.add(what).from(byDue).add(" WHERE queue = "+queue, args...).
			add(" AND status = 0 AND op + 0 = 0 AND load_ms > ? AND load_ms <= ? AND id + 0 <= ?", floor.UntilMs, untilMs, floor.Number).
			add(" ORDER BY load_ms, id LIMIT ?", mostNew)
	}
	q := p.db.query("("+what).from(byNumber).add(" WHERE id > ? AND queue", floor.Number).texts(queues).
		add(" AND status + 0 = 0 AND load_ms + 0 <= ? ORDER BY id LIMIT ?)", untilMs, mostNew)
	if p.db.dialect.arrays {
		reached(q.add(" UNION ALL SELECT found.* FROM unnest(?::text[]) AS wanted (queue) CROSS JOIN LATERAL (", queues), "wanted.queue")
		q.add(") AS found")
	} else {
		for _, queue := range queues {
			reached(q.add(" UNION ALL ("), "?", []byte(queue))
			q.add(")")
		}
	}
	return q.add(" UNION ALL (SELECT max(id), '', 0 FROM {t} WHERE id > ?)", floor.Number)
}
