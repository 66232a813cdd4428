package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"

	"github.com/delaybridge/delaybridge/internal/store"
)

// keyset is the last row of a chunk. The databases go through the live rows in
// the order of an index that holds few others: PostgreSQL by identity, which
// never changes; MySQL by due time: a row that is moved meanwhile was in the
// hands of somebody, and those are looked at again.
type keyset struct {
	identity
	cursor
	set bool
}

// storedAfter reads the next rows of a queue that say that Redis has their message.
func (d *Database) storedAfter(ctx context.Context, queue string, after keyset) ([]*stored, error) {
	return d.readStored(ctx, d.storedQuery(queue, after))
}

// storedQuery is the statement of storedAfter. Both parts of MySQL's condition
// are ranges of the index, so that many rows of one due time are not read again
// for every chunk.
func (d *Database) storedQuery(queue string, after keyset) *query {
	q := d.query("SELECT "+columns).from(byLoad).add(" WHERE queue = ? AND op = 0 AND status = 1", queue)
	switch {
	case d.dialect.arrays:
		if after.set {
			q.add(" AND (message_key, message_id) > (?, ?)", after.key, after.id)
		}
		q.add(" ORDER BY message_key, message_id LIMIT ?", chunkRows)
	default:
		if after.set {
			q.add(" AND (load_ms > ? OR load_ms = ? AND id > ?)", after.loadMs, after.loadMs, after.number)
		}
		q.add(" ORDER BY load_ms, id LIMIT ?", chunkRows)
	}
	return q
}

// storedOf reads those of the identities that say so.
func (d *Database) storedOf(ctx context.Context, list []identity) ([]*stored, error) {
	if len(list) == 0 {
		return nil, nil
	}
	return d.readStored(ctx, d.of(list, columns, "op = 0 AND status = 1", ""))
}

// readStored runs the query, and looks what operations mean for its rows.
func (d *Database) readStored(ctx context.Context, q *query) (list []*stored, err error) {
	err = d.within(ctx, func(tx querier) error {
		rows, err := d.rows(ctx, tx, q)
		if err != nil || len(rows) == 0 {
			return err
		}
		names := make([]identity, len(rows))
		revisions := map[int64]*stored{}
		for i, r := range rows {
			list, names[i] = append(list, &stored{row: *r}), r.identity
			if r.revision > 0 {
				revisions[r.revision] = list[i]
			}
		}
		operated, err := d.operated(ctx, tx, names)
		if err != nil {
			return fmt.Errorf("look for operations: %w", err)
		}
		for _, s := range list {
			s.operated = operated[s.identity]
		}
		return d.readUnsure(ctx, tx, revisions)
	})
	return list, err
}

// readUnsure finds rows whose last reschedule was told that a copy may be out.
func (d *Database) readUnsure(ctx context.Context, tx querier, revisions map[int64]*stored) error {
	if len(revisions) == 0 {
		return nil
	}
	q := d.query("SELECT id FROM {t} WHERE id").ids(slices.Sorted(maps.Keys(revisions))).add(" AND status = ?", int64(stateUnknown))
	return q.each(ctx, tx, func(rows *sql.Rows) error {
		var number int64
		err := rows.Scan(&number)
		if s := revisions[number]; s != nil {
			s.copyOut = true
		}
		return err
	})
}

// pendingIdentities are those of a queue that a relay may have in its hands; all
// is false where there are more than most.
func (d *Database) pendingIdentities(ctx context.Context, queue string, untilMs int64, most int) (list []identity, all bool, err error) {
	q := d.query("SELECT message_key, message_id").from(byLoad).
		add(" WHERE status = 0 AND load_ms <= ? AND ", untilMs).queues([]string{queue}, true).add(" ORDER BY load_ms, id LIMIT ?", most+1)
	err = d.within(ctx, func(tx querier) error {
		return q.each(ctx, tx, func(rows *sql.Rows) error {
			it := identity{queue: queue}
			err := rows.Scan(&it.key, &it.id)
			list = append(list, it)
			return err
		})
	})
	if err != nil {
		return nil, false, fmt.Errorf("read pending rows: %w", err)
	}
	return list[:min(len(list), most)], len(list) <= most, nil
}

// recheck looks again at rows whose messages were put back: somebody who knew of
// one before Redis was wiped may have settled or moved it since it was read. It
// returns those that are to be read again.
func (p *pass) recheck(ctx context.Context, created []*stored, counts *Counts) (left []*stored, err error) {
	if p.dry || len(created) == 0 {
		return nil, nil
	}
	numbers := make([]int64, len(created))
	for i, r := range created {
		numbers[i] = r.number
	}
	slices.Sort(numbers)
	live := make(map[int64]string, len(created))
	q := p.db.query("SELECT id, token FROM {t} WHERE id").ids(numbers).add(" AND status = 1")
	err = p.db.within(ctx, func(tx querier) error {
		return q.each(ctx, tx, func(rows *sql.Rows) error {
			var number int64
			var token string
			err := rows.Scan(&number, &token)
			live[number] = token
			return err
		})
	})
	if err != nil {
		return created, fmt.Errorf("look at rows again: %w", err)
	}
	var ended []store.SettledRow
	for _, r := range created {
		switch live[r.number] {
		case r.token:
			continue
		case "":
		default:
			left = append(left, r)
		}
		ended = append(ended, store.SettledRow{Token: r.token, ID: r.id, Key: r.key, What: store.FateCancelled})
	}
	if len(ended) == 0 {
		return nil, nil
	}
	n, err := p.queue.Redis.Remove(ctx, ended)
	counts.PutBack -= int64(n)
	if err != nil {
		return created, fmt.Errorf("take messages back: %w", err)
	}
	return left, nil
}

// settleEnded tells rows whose messages were published.
func (p *pass) settleEnded(ctx context.Context, ended []fate, counts *Counts) error {
	counts.Settled += int64(len(ended))
	if p.dry || len(ended) == 0 {
		return nil
	}
	known, err := p.db.settle(ctx, ended, decider{untilPublished: true}, false)
	if err != nil {
		counts.Settled -= int64(len(ended))
		return err
	}
	for _, k := range known {
		if k == knownBusy {
			counts.Settled--
			counts.Skipped++
		}
	}
	return nil
}
