package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/delaybridge/delaybridge/internal/store"
)

// fate is what became of an outbox message, for its row.
type fate struct {
	identity
	store.SettledRow
}

// known is what a database knows of a fate.
type known int

const (
	// knownAbsent: no row lives under that token.
	knownAbsent known = iota
	// knownSettled: the row says so now.
	knownSettled
	// knownBusy: somebody else works on the row, or will.
	knownBusy
)

// settle tells rows what became of their messages, at most [settleBatch] of
// them, in one transaction that waits for nobody. By index it says what the
// database knew.
//
// A row that a relay holds, or that has pending operations, is left alone: the
// token in force may be about to change. So a fate may be forgotten only where
// neither is the case and no row lives under its token, which is looked for
// after the locks were tried: what changed in between is seen.
func (d *Database) settle(ctx context.Context, fates []fate) ([]known, error) {
	tx, err := d.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }() // Nothing, where it was committed.
	list := make([]identity, len(fates))
	for i, f := range fates {
		list[i] = f.identity
	}
	locked, err := d.tokens(ctx, tx, list, " FOR UPDATE SKIP LOCKED")
	if err != nil {
		return nil, fmt.Errorf("lock settled rows: %w", err)
	}
	operated, err := d.operated(ctx, tx, list)
	if err != nil {
		return nil, fmt.Errorf("look for operations: %w", err)
	}
	outcome, absent := make([]known, len(fates)), false
	var to updates
	for i, f := range fates {
		number, mine := locked[under{f.identity, f.Token}]
		switch {
		case operated[f.identity]:
			outcome[i] = knownBusy
		case !mine:
			absent = true
		default:
			outcome[i] = knownSettled
			if err := d.settleOne(ctx, tx, number, f, &to); err != nil {
				return nil, err
			}
		}
	}
	if err := d.write(ctx, tx, &to); err != nil {
		return nil, err
	}
	if absent {
		live, err := d.tokens(ctx, tx, list, "")
		if err != nil {
			return nil, fmt.Errorf("look for rows: %w", err)
		}
		for i, f := range fates {
			if _, there := live[under{f.identity, f.Token}]; there && outcome[i] == knownAbsent {
				outcome[i] = knownBusy
			}
		}
	}
	if err := tx.Commit(); err != nil {
		return nil, fmt.Errorf("settle rows: %w", err)
	}
	return outcome, nil
}

func (d *Database) settleOne(ctx context.Context, tx querier, number int64, f fate, to *updates) error {
	switch f.What {
	case store.FatePublished:
		to.set(number, update{state: statePublished})
	case store.FateCancelled:
		to.set(number, update{state: stateCancelled})
	case store.FateMoved:
		q := d.query("").add("UPDATE {t} SET due_ms = ? WHERE id = ?", f.DueAt.UnixMilli(), number)
		if _, err := q.exec(ctx, tx); err != nil {
			return fmt.Errorf("move row: %w", err)
		}
	}
	return nil
}

// under is a row by its token in force.
type under struct {
	identity
	token string
}

// tokens finds the live rows of messages, by their tokens.
func (d *Database) tokens(ctx context.Context, db querier, list []identity, lock string) (map[under]int64, error) {
	found := make(map[under]int64, len(list))
	if list = d.possible(list); len(list) == 0 {
		return found, nil
	}
	q := d.of(list, "id, queue, message_key, message_id, token", "op = 0 AND status IN (0, 1)", lock)
	err := q.each(ctx, db, func(rows *sql.Rows) error {
		var number int64
		var u under
		err := rows.Scan(&number, &u.queue, &u.key, &u.id, &u.token)
		found[u] = number
		return err
	})
	return found, err
}

// possible are the identities that the database could have: PostgreSQL refuses
// a statement that holds others.
func (d *Database) possible(list []identity) []identity {
	valid := func(it identity) bool {
		return utf8.ValidString(it.key) && utf8.ValidString(it.id) && !strings.Contains(it.key+it.id, "\x00")
	}
	if !d.dialect.arrays || !slices.ContainsFunc(list, func(it identity) bool { return !valid(it) }) {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), func(it identity) bool { return !valid(it) })
}

// operated are the identities that have pending operations.
func (d *Database) operated(ctx context.Context, db querier, list []identity) (map[identity]bool, error) {
	if list = d.possible(list); len(list) == 0 {
		return nil, nil //nolint:nilnil // A nil map has none.
	}
	var look outlook
	if err := d.look(ctx, db, queuesOf(list), &look); err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(slices.Clone(list), func(it identity) bool { return !look.queues[it.queue].operations })
	if len(list) == 0 {
		return nil, nil //nolint:nilnil // A nil map has none.
	}
	found := map[identity]bool{}
	q := d.of(list, "queue, message_key, message_id", hasOperation, "")
	err := q.each(ctx, db, func(rows *sql.Rows) error {
		var it identity
		err := rows.Scan(&it.queue, &it.key, &it.id)
		found[it] = true
		return err
	})
	return found, err
}

// queuesOf are the queues of the identities.
func queuesOf(list []identity) []string {
	var queues []string
	for _, it := range list {
		if !slices.Contains(queues, it.queue) {
			queues = append(queues, it.queue)
		}
	}
	return queues
}
