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
	operations, heads bool
	now               time.Time // by Redis' clock, from before the look
	horizon           time.Duration
}

// untilMs is up to when rows are loaded.
func (o outlook) untilMs() int64 { return o.now.Add(o.horizon).UnixMilli() }

// look asks whether there may be anything to do, for whatever queue, and takes no
// lock. It reads two entries of an index: most of the time there is nothing.
func (d *Database) look(ctx context.Context, now time.Time, horizon time.Duration) (outlook, error) {
	look := outlook{now: now, horizon: horizon}
	q := d.query("SELECT (SELECT 1").from(byLoad).
		add(" WHERE status = 0 AND load_ms = 0 AND op + 0 > 0 ORDER BY load_ms, id LIMIT 1), (SELECT load_ms").from(byLoad).
		add(" WHERE status = 0 ORDER BY load_ms, id LIMIT 1)")
	err := q.each(ctx, d.db, func(rows *sql.Rows) error {
		var operation, firstMs sql.NullInt64
		err := rows.Scan(&operation, &firstMs)
		look.operations, look.heads = operation.Valid, firstMs.Valid && firstMs.Int64 <= look.untilMs()
		return err
	})
	if err != nil {
		return outlook{}, fmt.Errorf("look for rows: %w", err)
	}
	return look, nil
}

// lockHeads locks a batch of pending messages' rows that are due within the
// horizon, and leaves those that somebody else has locked. What has pending
// operations is left to [Database.lockOperations]: else two lanes might hold one
// half each of an identity, again and again.
func (d *Database) lockHeads(ctx context.Context, tx querier, queues []string, look outlook, after cursor, most int) ([]*row, error) {
	rows, err := d.rows(ctx, tx, d.headsQuery(queues, look, after, most))
	if err != nil {
		return nil, fmt.Errorf("lock rows: %w", err)
	}
	return rows, nil
}

// headsQuery is the statement of lockHeads.
func (d *Database) headsQuery(queues []string, look outlook, after cursor, most int) *query {
	q := d.query("SELECT "+columns).from(byLoad).
		add(" WHERE status = 0 AND op + 0 = 0 AND load_ms <= ? AND ", look.untilMs()).queues(queues, true)
	if after != (cursor{}) {
		q.add(" AND (load_ms > ? OR load_ms = ? AND id > ?)", after.loadMs, after.loadMs, after.number)
	}
	if look.operations {
		q.add(" AND NOT EXISTS (SELECT 1 FROM {t} o").hinted(byIdentity).add(" WHERE o.queue = {t}.queue AND o.message_key = {t}.message_key" +
			" AND o.message_id = {t}.message_id AND " + hasOperation + d.dialect.fence + ")")
	}
	return q.add(" ORDER BY load_ms, id LIMIT ? FOR UPDATE SKIP LOCKED", most)
}

// lockOperations locks a batch of pending cancels and reschedules.
func (d *Database) lockOperations(ctx context.Context, tx querier, queues []string, after cursor, most int) ([]*row, error) {
	q := d.query("SELECT "+columns).from(byLoad).
		add(" WHERE status = 0 AND op + 0 > 0 AND load_ms = 0 AND id > ? AND ", after.number).queues(queues, true).
		add(" ORDER BY load_ms, id LIMIT ? FOR UPDATE SKIP LOCKED", most)
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
