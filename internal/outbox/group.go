package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
)

// group is one identity, of which we hold all pending rows.
type group struct {
	identity
	operations []*row // pending, in the order of their revisions
	head       *row   // the live row of the message; nil if there is none
	// ended are the states of targets that live no more; a target that is missing
	// was deleted.
	ended map[int64]state
	// overtaken is the highest number of a finished row: operations below it come
	// too late.
	overtaken int64
	// last is how the last message has ended, pending where that is not known.
	last state
}

// gather locks all pending rows of the identities, and leaves out those of which
// somebody else holds one, or of which one has just been committed. busy tells
// which.
//
// All locks come first, then the reads: what is read is what the last holder of
// the locks has left. Whoever holds one pending operation keeps all others out,
// because they see that it is pending and is not theirs.
func (d *Database) gather(ctx context.Context, tx querier, list []identity) (groups []*group, busy map[identity]bool, err error) {
	all := make(map[identity]*group, len(list))
	for _, it := range list {
		if all[it] == nil {
			all[it] = &group{identity: it}
			groups = append(groups, all[it])
		}
	}
	busy = map[identity]bool{}
	if err := d.lockPending(ctx, tx, list, all); err != nil {
		return nil, nil, fmt.Errorf("lock identities: %w", err)
	}
	if err := d.readHeads(ctx, tx, list, all, busy); err != nil {
		return nil, nil, fmt.Errorf("read heads: %w", err)
	}
	if err := d.readHistory(ctx, tx, list, all, busy); err != nil {
		return nil, nil, fmt.Errorf("read history: %w", err)
	}
	groups = slices.DeleteFunc(groups, func(g *group) bool { return busy[g.identity] })
	if err := d.readTargets(ctx, tx, groups); err != nil {
		return nil, nil, fmt.Errorf("read targets: %w", err)
	}
	return groups, busy, nil
}

// lockPending locks operations and live messages.
func (d *Database) lockPending(ctx context.Context, tx querier, list []identity, all map[identity]*group) error {
	q := d.of(list, columns, hasOperation, " FOR UPDATE SKIP LOCKED")
	rows, err := d.rows(ctx, tx, q)
	if err != nil {
		return err
	}
	for _, r := range rows {
		if g := all[r.identity]; g != nil {
			g.operations = append(g.operations, r)
		}
	}
	q = d.of(list, columns, "op = 0 AND status IN (0, 1)", " FOR UPDATE SKIP LOCKED")
	if rows, err = d.rows(ctx, tx, q); err != nil {
		return err
	}
	for _, r := range rows {
		if g := all[r.identity]; g != nil {
			g.head = r
		}
	}
	for _, g := range all {
		slices.SortFunc(g.operations, func(a, b *row) int { return cmp.Compare(a.number, b.number) })
	}
	return nil
}

// readHeads finds live messages that somebody else holds.
func (d *Database) readHeads(ctx context.Context, tx querier, list []identity, all map[identity]*group, busy map[identity]bool) error {
	q := d.of(list, "queue, message_key, message_id, id", "op = 0 AND status IN (0, 1)", "")
	return q.each(ctx, tx, func(rows *sql.Rows) error {
		var it identity
		var number int64
		err := rows.Scan(&it.queue, &it.key, &it.id, &number)
		if g := all[it]; g != nil && (g.head == nil || g.head.number != number) {
			busy[it] = true
		}
		return err
	})
}

// readHistory finds operations that somebody else holds, and what has finished.
func (d *Database) readHistory(ctx context.Context, tx querier, list []identity, all map[identity]*group, busy map[identity]bool) error {
	q := d.of(list, "queue, message_key, message_id, SUM(CASE WHEN status = 0 THEN 1 ELSE 0 END), MAX(CASE WHEN status = 0 THEN 0 ELSE id END),"+
		" MAX(CASE WHEN op = 0 THEN id ELSE 0 END), MAX(CASE WHEN op = 0 AND status = 2 THEN id ELSE 0 END),"+
		" MAX(CASE WHEN op = 0 AND status = 3 AND reason = '' THEN id ELSE 0 END)",
		"op > 0 OR status > 1", " GROUP BY queue, message_key, message_id")
	return q.each(ctx, tx, func(rows *sql.Rows) error {
		var it identity
		var waiting int
		var message, published, cancelled int64
		var g group
		err := rows.Scan(&it.queue, &it.key, &it.id, &waiting, &g.overtaken, &message, &published, &cancelled)
		if known := all[it]; known != nil {
			known.overtaken = g.overtaken
			switch {
			case message == 0:
			case published == message:
				known.last = statePublished
			case cancelled == message:
				known.last = stateCancelled
			}
			if waiting != len(known.operations) {
				busy[it] = true
			}
		}
		return err
	})
}

// readTargets reads how the targets of operations have ended.
func (d *Database) readTargets(ctx context.Context, tx querier, groups []*group) error {
	wanted := map[int64][]*group{}
	var numbers []int64
	var list []identity
	for _, g := range groups {
		g.ended = map[int64]state{}
		before := len(numbers)
		for _, op := range g.operations {
			if op.target.Valid && (g.head == nil || g.head.number != op.target.Int64) {
				wanted[op.target.Int64] = append(wanted[op.target.Int64], g)
				numbers = append(numbers, op.target.Int64)
			}
		}
		if len(numbers) > before {
			list = append(list, g.identity)
		}
	}
	tell := func(rows *sql.Rows) error {
		var number int64
		var it identity
		var how update
		err := rows.Scan(&number, &it.queue, &it.key, &it.id, &how.state, &how.reason)
		for _, g := range wanted[number] {
			if g.identity == it {
				g.ended[number] = how.end()
			}
		}
		return err
	}
	// A deleted row says nothing, but the operation that has cancelled it does.
	for chunk := range slices.Chunk(list, batchRows) {
		q := d.of(chunk, "target, queue, message_key, message_id, status, reason", "op = 1 AND status IN (3, 5) AND target IS NOT NULL", " ORDER BY id DESC")
		if err := q.each(ctx, tx, tell); err != nil {
			return err
		}
	}
	for chunk := range slices.Chunk(numbers, batchRows) {
		q := d.query("SELECT id, queue, message_key, message_id, status, reason FROM {t} WHERE id").ids(chunk).add(" AND op = 0 AND status > 1")
		if err := q.each(ctx, tx, tell); err != nil {
			return err
		}
	}
	return nil
}
