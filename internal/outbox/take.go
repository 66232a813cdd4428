package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"
)

const (
	// batchRows is how many identities a statement names, and so how many
	// operations a round takes.
	batchRows = 500
	// batchBytes is how much of headers and bodies a round holds in memory; it
	// takes at least one row.
	batchBytes = 16 << 20
	// hugeRow is the size from which on a row is not even read: no limit of a
	// queue allows it, however its headers are escaped.
	hugeRow = 128 << 20
)

// outlook is what there is to do.
type outlook struct {
	now     time.Time // by Redis' clock, from before the look
	read    time.Time // by our own, when that was read
	horizon time.Duration
	queues  map[string]waiting
}

// waiting is what a queue has pending.
type waiting struct{ operations, heads bool }

// untilMs is up to when rows are loaded.
func (o outlook) untilMs() int64 { return o.now.Add(o.horizon).UnixMilli() }

// look asks what the queues have pending, and takes no lock. It reads two entries
// of an index a queue: most of the time there is nothing.
func (d *Database) look(ctx context.Context, db querier, queues []string, o *outlook) error {
	o.queues = make(map[string]waiting, len(queues))
	err := d.lookQuery(queues).each(ctx, db, func(rows *sql.Rows) error {
		var queue string
		var operation, firstMs sql.NullInt64
		err := rows.Scan(&queue, &operation, &firstMs)
		o.queues[queue] = waiting{operation.Valid, firstMs.Valid && firstMs.Int64 <= o.untilMs()}
		return err
	})
	if err != nil {
		return fmt.Errorf("look for rows: %w", err)
	}
	return nil
}

// lookQuery is the statement of look.
func (d *Database) lookQuery(queues []string) *query {
	one := func(q *query, queue string, args ...any) {
		q.add(", (SELECT 1").from(byDue).add(" WHERE queue = "+queue+" AND status = 0 AND load_ms = 0 AND op + 0 > 0 ORDER BY load_ms, id LIMIT 1)", args...).
			add(", (SELECT load_ms").from(byDue).add(" WHERE queue = "+queue+" AND status = 0 ORDER BY load_ms, id LIMIT 1)", args...)
	}
	if d.dialect.arrays {
		q := d.query("SELECT wanted.queue")
		one(q, "wanted.queue")
		return q.add(" FROM unnest(?::text[]) AS wanted (queue)", queues)
	}
	q := d.query("")
	for i, queue := range queues {
		if i > 0 {
			q.add(" UNION ALL ")
		}
		q.add("SELECT ?", queue)
		one(q, "?", []byte(queue))
	}
	return q
}

// cursor is the last row of the batch before.
type cursor struct {
	loadMs, number int64
}

// lockHeads locks a batch of a queue's pending messages' rows that are due within
// the horizon, and leaves those that somebody else has locked, and those that are
// blocked. What has pending operations is left to [Database.lockOperations]: else
// two lanes might hold one half each of an identity, again and again.
func (d *Database) lockHeads(ctx context.Context, tx querier, w work) ([]*row, error) {
	rows, err := d.rows(ctx, tx, d.headsQuery(w))
	if err != nil {
		return nil, fmt.Errorf("lock rows: %w", err)
	}
	return rows, nil
}

// work is a batch to be taken.
type work struct {
	queue      string
	operations bool // the queue has some pending
	untilMs    int64
	after      cursor
	blocked    []int64
	most       int
}

// headsQuery is the statement of lockHeads.
func (d *Database) headsQuery(w work) *query {
	q := d.query("SELECT "+columns).from(byDue).
		add(" WHERE queue = ? AND status = 0 AND op + 0 = 0 AND load_ms <= ?", d.text(w.queue), w.untilMs)
	if w.after != (cursor{}) {
		q.after("load_ms", w.after)
	}
	if len(w.blocked) > 0 {
		q.add(" AND NOT id + 0").ids(w.blocked)
	}
	if w.operations {
		q.add(" AND NOT EXISTS (SELECT 1 FROM {t} o").hinted(byIdentity).add(" WHERE o.queue = {t}.queue AND o.message_key = {t}.message_key" +
			" AND o.message_id = {t}.message_id AND " + hasOperation + d.dialect.fence + ")")
	}
	return q.add(" ORDER BY load_ms, id LIMIT ? FOR UPDATE SKIP LOCKED", w.most)
}

// lockOperations locks a batch of a queue's pending cancels and reschedules.
func (d *Database) lockOperations(ctx context.Context, tx querier, w work) ([]*row, error) {
	q := d.query("SELECT "+columns).from(byDue).
		add(" WHERE queue = ? AND status = 0 AND op + 0 > 0 AND load_ms = 0 AND id > ?", d.text(w.queue), w.after.number).
		add(" ORDER BY load_ms, id LIMIT ? FOR UPDATE SKIP LOCKED", w.most)
	rows, err := d.rows(ctx, tx, q)
	if err != nil {
		return nil, fmt.Errorf("lock operations: %w", err)
	}
	return rows, nil
}

func (d *Database) rows(ctx context.Context, tx querier, q *query) ([]*row, error) {
	var list []*row
	err := q.each(ctx, tx, func(rows *sql.Rows) error {
		r := new(row)
		list = append(list, r)
		return r.scan(rows)
	})
	return list, err
}

// affordable is how many of the rows fit in memory together.
func affordable(rows []*row) int {
	var bytes int64
	for i, r := range rows {
		if r.content.size > hugeRow {
			continue
		}
		if bytes += r.content.size; bytes > batchBytes && i > 0 {
			return i
		}
	}
	return len(rows)
}

// complete reads headers and bodies that did not come with their rows.
func (d *Database) complete(ctx context.Context, tx querier, rows []*row) error {
	wanted := map[int64]*row{}
	var numbers []int64
	for _, r := range rows {
		if !r.content.whole && r.content.size <= hugeRow {
			wanted[r.number] = r
			numbers = append(numbers, r.number)
		}
	}
	for chunk := range slices.Chunk(numbers, 50) {
		q := d.query("SELECT id, {headers}, body FROM {t} WHERE id").ids(chunk)
		err := q.each(ctx, tx, func(rows *sql.Rows) error {
			var number int64
			var r row
			if err := rows.Scan(&number, &r.content.headers, &r.content.body); err != nil {
				return err
			}
			if w := wanted[number]; w != nil {
				w.content.headers, w.content.body, w.content.whole = r.content.headers, r.content.body, true
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("read bodies: %w", err)
		}
	}
	return nil
}
