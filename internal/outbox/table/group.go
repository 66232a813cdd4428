package table

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
)

// Group is an identity with all its pending rows locked.
type Group struct {
	Identity
	Operations []*Row // pending, in the order of their revisions
	Head       *Row   // the live row of the message; nil if there is none
	// Ended has the states of targets that have ended; a missing target was
	// deleted.
	Ended map[int64]State
	// Last says how the last message ended; pending if that is not known.
	Last State
}

// Gather locks all pending rows of the identities. It leaves out identities of which
// another transaction holds a row, or has just committed one; busy has those.
//
// All locks come first, then the reads, which therefore see what the last
// holder of the locks has left. Holding one pending operation keeps all others
// out, because they see a pending one that is not theirs.
func (t *Tx) Gather(ctx context.Context, list []Identity) (groups []*Group, busy map[Identity]bool, err error) {
	all := make(map[Identity]*Group, len(list))
	for _, it := range list {
		if all[it] == nil {
			all[it] = &Group{Identity: it}
			groups = append(groups, all[it])
		}
	}
	busy = map[Identity]bool{}
	open, err := t.open(ctx, list)
	if err != nil {
		return nil, nil, fmt.Errorf("look for open rows: %w", err)
	}
	mine, err := t.lockOpen(ctx, open)
	if err != nil {
		return nil, nil, fmt.Errorf("lock open rows: %w", err)
	}
	held := make(map[int64]bool, len(mine))
	for _, r := range mine {
		g := all[r.Identity]
		if held[r.Number] = true; r.Verb == VerbSchedule {
			g.Head = r
		} else {
			g.Operations = append(g.Operations, r)
		}
	}
	if open, err = t.open(ctx, list); err != nil {
		return nil, nil, fmt.Errorf("look for the rows of others: %w", err)
	}
	for _, r := range open {
		if !held[r.Number] {
			busy[r.Identity] = true
		}
	}
	groups = slices.DeleteFunc(groups, func(g *Group) bool { return busy[g.Identity] })
	if err := t.readEnds(ctx, groups); err != nil {
		return nil, nil, fmt.Errorf("read ended messages: %w", err)
	}
	return groups, busy, nil
}

// open finds the open rows of identities: their live messages and pending operations.
// It reads only names, and takes no lock.
func (t *Tx) open(ctx context.Context, list []Identity) (rows []*Row, err error) {
	if list = t.db.possible(list); len(list) == 0 {
		return nil, nil
	}
	err = t.openQuery(list).each(ctx, t.tx, func(found *sql.Rows) error {
		r := new(Row)
		rows = append(rows, r)
		return found.Scan(&r.Number, &r.Queue, &r.Key, &r.ID, &r.Verb, &r.Token)
	})
	return rows, err
}

// openQuery is the statement of open.
func (t *Tx) openQuery(list []Identity) *query {
	q := t.db.query("")
	for i, condition := range t.db.dialect.open {
		if i > 0 {
			q.add(" UNION ALL ")
		}
		q.of(byOpen, list, "id, queue, message_key, message_id, op, token", condition, "")
	}
	return q
}

// lockChunk is how many rows one statement locks.
const lockChunk = 5000

// lockOpen locks those of the rows that are still open and not locked by others, in
// the order of their numbers, and reads them as they are now. They are locked by their
// numbers only: a lock in an index would make producers and other relays wait.
func (t *Tx) lockOpen(ctx context.Context, open []*Row) (rows []*Row, err error) {
	numbers := make([]int64, len(open))
	for i, r := range open {
		numbers[i] = r.Number
	}
	slices.Sort(numbers)
	for chunk := range slices.Chunk(numbers, lockChunk) {
		q := t.db.query("SELECT " + columns).from(byNumber).add(" WHERE id").ids(chunk).
			add(" AND (op + 0 = 0 AND status + 0 IN (0, 1) OR op + 0 > 0 AND status + 0 = 0) ORDER BY id FOR UPDATE SKIP LOCKED")
		part, err := t.db.rows(ctx, t.tx, q)
		if err != nil {
			return nil, err
		}
		rows = append(rows, part...)
	}
	return rows, nil
}

// readEnds reads how the messages of operations ended, if they are not live: the
// operations' targets, or else the newest message of their identity.
func (t *Tx) readEnds(ctx context.Context, groups []*Group) error {
	var targets []int64
	for _, g := range groups {
		targets = append(targets, g.strangers()...)
	}
	ends, err := t.ends(ctx, targets)
	if err != nil {
		return err
	}
	var unknown []*Group
	for _, g := range groups {
		g.Ended = map[int64]State{}
		all := true
		for _, number := range g.strangers() {
			end, found := ends[number]
			if found = found && end.Identity == g.Identity; found {
				g.Ended[number] = end.how.End()
			}
			all = all && found
		}
		if !all || g.Head == nil && slices.ContainsFunc(g.Operations, func(op *Row) bool { return !op.Target.Valid }) {
			unknown = append(unknown, g)
		}
	}
	for chunk := range slices.Chunk(unknown, recentGroups) {
		if err := t.readRecent(ctx, chunk); err != nil {
			return err
		}
	}
	return nil
}

// strangers returns the targets of operations other than the head.
func (g *Group) strangers() (numbers []int64) {
	for _, op := range g.Operations {
		if op.Target.Valid && (g.Head == nil || g.Head.Number != op.Target.Int64) {
			numbers = append(numbers, op.Target.Int64)
		}
	}
	return numbers
}

// end is how a message has ended.
type end struct {
	Identity
	how Update
}

// ends reads how messages have ended, by the numbers of their rows.
func (t *Tx) ends(ctx context.Context, numbers []int64) (map[int64]end, error) {
	found := make(map[int64]end, len(numbers))
	for chunk := range slices.Chunk(numbers, BatchRows) {
		q := t.db.query("SELECT id, queue, message_key, message_id, status, reason FROM {t} WHERE id").ids(chunk).add(" AND op = 0 AND status > 1")
		err := q.each(ctx, t.tx, func(rows *sql.Rows) error {
			var number int64
			var e end
			err := rows.Scan(&number, &e.Queue, &e.Key, &e.ID, &e.how.State, &e.how.Reason)
			found[number] = e
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

const (
	// recentRows is how many of an identity's ended rows are read, the newest ones.
	recentRows = 32
	// recentGroups is for how many identities at once.
	recentGroups = 50
)

// endedRow is one of an identity's ended rows.
type endedRow struct {
	Identity
	number int64
	verb   Verb
	target sql.NullInt64
	how    Update
}

// message returns the number of the message's row, 0 if that is not known.
func (e *endedRow) message() int64 {
	if e.verb <= VerbSchedule {
		return e.number
	}
	return e.target.Int64
}

// readRecent reads the newest ended rows of identities. They show which message was the
// last, since an operation names its message, and how a message whose row was deleted
// ended, since the operation that cancelled it says so. If more operations than these
// came after a message's end, that is unknown.
func (t *Tx) readRecent(ctx context.Context, groups []*Group) error {
	list := make([]Identity, len(groups))
	for i, g := range groups {
		list[i] = g.Identity
	}
	rows, newest := map[Identity][]*endedRow{}, map[Identity]int64{}
	err := t.db.recentQuery(list).each(ctx, t.tx, func(found *sql.Rows) error {
		e := new(endedRow)
		err := found.Scan(&e.number, &e.Queue, &e.Key, &e.ID, &e.verb, &e.target, &e.how.State, &e.how.Reason)
		rows[e.Identity] = append(rows[e.Identity], e)
		newest[e.Identity] = max(newest[e.Identity], e.message())
		return err
	})
	if err != nil {
		return err
	}
	ends, err := t.ends(ctx, slices.Collect(maps.Values(newest)))
	if err != nil {
		return err
	}
	for _, g := range groups {
		if last := ends[newest[g.Identity]]; last.Identity == g.Identity {
			if how := last.how.End(); how == StatePublished || how == StateCancelled {
				g.Last = how
			}
		}
		for _, e := range slices.Backward(rows[g.Identity]) { // The first one has done it.
			_, known := g.Ended[e.target.Int64]
			if !known && e.verb == VerbCancel && e.target.Valid && (e.how.State == StateCancelled || e.how.State == StateUnknown) {
				g.Ended[e.target.Int64] = e.how.End()
			}
		}
	}
	return nil
}

// recentQuery is the statement of readRecent, the newest rows first.
func (d *Database) recentQuery(list []Identity) *query {
	const what, condition = "id, queue, message_key, message_id, op, target, status, reason", "(op > 0 OR status > 1) AND status > 0"
	newest := fmt.Sprintf(" ORDER BY id DESC LIMIT %d", recentRows)
	if d.dialect.arrays {
		return d.query("").of(byIdentity, list, what, condition, newest)
	}
	q := d.query("")
	for i, it := range list { // MariaDB has no LATERAL.
		if i > 0 {
			q.add(" UNION ALL ")
		}
		q.add("(SELECT "+what).from(byIdentity).
			add(" WHERE queue = ? AND message_key = ? AND message_id = ? AND "+condition+newest+")", []byte(it.Queue), []byte(it.Key), []byte(it.ID))
	}
	return q
}
