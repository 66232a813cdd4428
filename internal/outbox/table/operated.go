package table

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

const (
	// listedOperations limits the pending operations of a queue that are listed.
	listedOperations = 1000
	// cheapListing is how long a listing may take to be made each time. While somebody
	// holds a snapshot, it walks over all operations since then.
	cheapListing = 50 * time.Millisecond
)

// withoutOperation appends the condition that no operation on the row's message is pending.
// The redundant part makes MariaDB look up each row by the index instead of reading the
// whole table once.
func (q *query) withoutOperation() *query {
	before, after, _ := strings.Cut(q.d.dialect.none, "…")
	return q.add(" AND " + before + "SELECT 1 FROM {t} o").hinted(byOpen).add(" WHERE o.queue = {t}.queue AND o.message_key = {t}.message_key" +
		" AND o.message_id = {t}.message_id AND o.id <> {t}.id AND {operation}" + q.d.dialect.fence + after)
}

// unoperated returns the rows without a pending operation. A queue usually has few
// pending operations, so they are listed, which costs nothing per row or per earlier row
// of an identity. If the listing did not help, each identity is looked up for a while.
func (t *Tx) unoperated(ctx context.Context, rows []*Row) ([]*Row, error) {
	operated, all, err := t.listOperated(ctx, rows)
	if err == nil && !all {
		names := make([]Identity, len(rows))
		for i, r := range rows {
			names[i] = r.Identity
		}
		operated, err = t.operated(ctx, names)
	}
	if err != nil {
		return nil, fmt.Errorf("look for operations: %w", err)
	}
	return slices.DeleteFunc(rows, func(r *Row) bool { return operated[r.Identity] }), nil
}

// listOperated lists the identities with pending operations in the rows' queues, and
// reports whether these are all.
func (t *Tx) listOperated(ctx context.Context, rows []*Row) (found map[Identity]bool, all bool, err error) {
	if next := t.db.nextListing.Load(); next != nil && time.Now().Before(*next) {
		return nil, false, nil
	}
	began := time.Now()
	found = map[Identity]bool{}
	seen := map[string]bool{}
	for _, r := range rows {
		if seen[r.Queue] {
			continue
		}
		seen[r.Queue] = true
		n := 0
		err := t.operatedQuery(r.Queue).each(ctx, t.tx, func(rows *sql.Rows) error {
			it := Identity{Queue: r.Queue}
			err := rows.Scan(&it.Key, &it.ID)
			found[it] = true
			n++
			return err
		})
		if err != nil {
			return nil, false, err
		}
		if all = n < listedOperations; !all {
			break
		}
	}
	if took := time.Since(began); !all || took > cheapListing {
		next := time.Now().Add(wait.Rest(took))
		t.db.nextListing.Store(&next)
	}
	return found, all, nil
}

// operatedQuery is the statement of listOperated.
func (t *Tx) operatedQuery(queue string) *query {
	return t.db.query("SELECT message_key, message_id").from(byDue).
		add(" WHERE queue = ? AND status = 0 AND load_ms = 0 AND op + 0 > 0 ORDER BY load_ms, id LIMIT ?", t.db.text(queue), listedOperations)
}

// operated returns those of the identities that have pending operations.
func (t *Tx) operated(ctx context.Context, list []Identity) (map[Identity]bool, error) {
	if list = t.db.possible(list); len(list) == 0 {
		return nil, nil //nolint:nilnil // A nil map has none.
	}
	found := map[Identity]bool{}
	q := t.db.query("").of(byOpen, list, "queue, message_key, message_id", "{operation}", "")
	err := q.each(ctx, t.tx, func(rows *sql.Rows) error {
		var it Identity
		err := rows.Scan(&it.Queue, &it.Key, &it.ID)
		found[it] = true
		return err
	})
	return found, err
}
