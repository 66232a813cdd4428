package table

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
)

// Group is one identity, of which we hold all pending rows.
type Group struct {
	Identity
	Operations []*Row // pending, in the order of their revisions
	Head       *Row   // the live row of the message; nil if there is none
	// Ended are the states of targets that live no more; a target that is missing
	// was deleted.
	Ended map[int64]State
	// Overtaken is the highest number of a finished row: operations below it come
	// too late.
	Overtaken int64
	// Last is how the last message has ended, pending where that is not known.
	Last State
}

// Gather locks all pending rows of the identities, and leaves out those of which
// somebody else holds one, or of which one has just been committed. busy tells
// which.
//
// All locks come first, then the reads: what is read is what the last holder of
// the locks has left. Whoever holds one pending operation keeps all others out,
// because they see that it is pending and is not theirs.
func (t *Tx) Gather(ctx context.Context, list []Identity) (groups []*Group, busy map[Identity]bool, err error) {
	all := make(map[Identity]*Group, len(list))
	for _, it := range list {
		if all[it] == nil {
			all[it] = &Group{Identity: it}
			groups = append(groups, all[it])
		}
	}
	busy = map[Identity]bool{}
	if err := t.lockPending(ctx, list, all); err != nil {
		return nil, nil, fmt.Errorf("lock identities: %w", err)
	}
	if err := t.readHeads(ctx, list, all, busy); err != nil {
		return nil, nil, fmt.Errorf("read heads: %w", err)
	}
	if err := t.readHistory(ctx, list, all, busy); err != nil {
		return nil, nil, fmt.Errorf("read history: %w", err)
	}
	groups = slices.DeleteFunc(groups, func(g *Group) bool { return busy[g.Identity] })
	if err := t.readTargets(ctx, groups); err != nil {
		return nil, nil, fmt.Errorf("read targets: %w", err)
	}
	return groups, busy, nil
}

// lockPending locks operations and live messages.
func (t *Tx) lockPending(ctx context.Context, list []Identity, all map[Identity]*Group) error {
	q := t.db.of(list, columns, hasOperation, " FOR UPDATE SKIP LOCKED")
	rows, err := t.db.rows(ctx, t.tx, q)
	if err != nil {
		return err
	}
	for _, r := range rows {
		if g := all[r.Identity]; g != nil {
			g.Operations = append(g.Operations, r)
		}
	}
	q = t.db.of(list, columns, "op = 0 AND status IN (0, 1)", " FOR UPDATE SKIP LOCKED")
	if rows, err = t.db.rows(ctx, t.tx, q); err != nil {
		return err
	}
	for _, r := range rows {
		if g := all[r.Identity]; g != nil {
			g.Head = r
		}
	}
	for _, g := range all {
		slices.SortFunc(g.Operations, func(a, b *Row) int { return cmp.Compare(a.Number, b.Number) })
	}
	return nil
}

// readHeads finds live messages that somebody else holds.
func (t *Tx) readHeads(ctx context.Context, list []Identity, all map[Identity]*Group, busy map[Identity]bool) error {
	q := t.db.of(list, "queue, message_key, message_id, id", "op = 0 AND status IN (0, 1)", "")
	return q.each(ctx, t.tx, func(rows *sql.Rows) error {
		var it Identity
		var number int64
		err := rows.Scan(&it.Queue, &it.Key, &it.ID, &number)
		if g := all[it]; g != nil && (g.Head == nil || g.Head.Number != number) {
			busy[it] = true
		}
		return err
	})
}

// readHistory finds operations that somebody else holds, and what has finished.
func (t *Tx) readHistory(ctx context.Context, list []Identity, all map[Identity]*Group, busy map[Identity]bool) error {
	q := t.db.of(list, "queue, message_key, message_id, SUM(CASE WHEN status = 0 THEN 1 ELSE 0 END), MAX(CASE WHEN status = 0 THEN 0 ELSE id END),"+
		" MAX(CASE WHEN op = 0 THEN id ELSE 0 END), MAX(CASE WHEN op = 0 AND status = 2 THEN id ELSE 0 END),"+
		" MAX(CASE WHEN op = 0 AND status = 3 AND reason = '' THEN id ELSE 0 END)",
		"op > 0 OR status > 1", " GROUP BY queue, message_key, message_id")
	return q.each(ctx, t.tx, func(rows *sql.Rows) error {
		var it Identity
		var waiting int
		var message, published, cancelled int64
		var g Group
		err := rows.Scan(&it.Queue, &it.Key, &it.ID, &waiting, &g.Overtaken, &message, &published, &cancelled)
		if known := all[it]; known != nil {
			known.Overtaken = g.Overtaken
			switch {
			case message == 0:
			case published == message:
				known.Last = StatePublished
			case cancelled == message:
				known.Last = StateCancelled
			}
			if waiting != len(known.Operations) {
				busy[it] = true
			}
		}
		return err
	})
}

// readTargets reads how the targets of operations have ended.
func (t *Tx) readTargets(ctx context.Context, groups []*Group) error {
	wanted := map[int64][]*Group{}
	var numbers []int64
	var list []Identity
	for _, g := range groups {
		g.Ended = map[int64]State{}
		before := len(numbers)
		for _, op := range g.Operations {
			if op.Target.Valid && (g.Head == nil || g.Head.Number != op.Target.Int64) {
				wanted[op.Target.Int64] = append(wanted[op.Target.Int64], g)
				numbers = append(numbers, op.Target.Int64)
			}
		}
		if len(numbers) > before {
			list = append(list, g.Identity)
		}
	}
	tell := func(rows *sql.Rows) error {
		var number int64
		var it Identity
		var how Update
		err := rows.Scan(&number, &it.Queue, &it.Key, &it.ID, &how.State, &how.Reason)
		for _, g := range wanted[number] {
			if g.Identity == it {
				g.Ended[number] = how.End()
			}
		}
		return err
	}
	// A deleted row says nothing, but the operation that has cancelled it does.
	for chunk := range slices.Chunk(list, BatchRows) {
		q := t.db.of(chunk, "target, queue, message_key, message_id, status, reason", "op = 1 AND status IN (3, 5) AND target IS NOT NULL", " ORDER BY id DESC")
		if err := q.each(ctx, t.tx, tell); err != nil {
			return err
		}
	}
	for chunk := range slices.Chunk(numbers, BatchRows) {
		q := t.db.query("SELECT id, queue, message_key, message_id, status, reason FROM {t} WHERE id").ids(chunk).add(" AND op = 0 AND status > 1")
		if err := q.each(ctx, t.tx, tell); err != nil {
			return err
		}
	}
	return nil
}
