package table

import (
	"context"
	"database/sql"
	"fmt"
)

// settle is the transaction of [Ended.Settle].
func (t *Tx) settle(ctx context.Context, fates []Fate) ([]Known, error) {
	list := make([]Identity, len(fates))
	for i, f := range fates {
		list[i] = f.Identity
	}
	locked, err := t.tokens(ctx, list, isLive, " FOR UPDATE SKIP LOCKED")
	if err != nil {
		return nil, fmt.Errorf("lock rows: %w", err)
	}
	operated, err := t.operated(ctx, list)
	if err != nil {
		return nil, fmt.Errorf("look for operations: %w", err)
	}
	outcome, absent := make([]Known, len(fates)), false
	updates := Updates{}
	for i, f := range fates {
		number, mine := locked[f.Version]
		switch {
		case operated[f.Identity]:
			outcome[i] = KnownBusy
		case !mine:
			absent = true
		default:
			outcome[i] = KnownSettled
			if err := t.settleOne(ctx, number, f, updates); err != nil {
				return nil, err
			}
		}
	}
	if err := t.Write(ctx, updates); err != nil || !absent {
		return outcome, err
	}
	live, err := t.tokens(ctx, list, isLive, "")
	if err != nil {
		return nil, fmt.Errorf("look for rows: %w", err)
	}
	for i, f := range fates {
		if _, there := live[f.Version]; there && outcome[i] == KnownAbsent {
			outcome[i] = KnownBusy
		}
	}
	return outcome, nil
}

func (t *Tx) settleOne(ctx context.Context, number int64, f Fate, updates Updates) error {
	if f.State != StateStored {
		updates.Set(number, Update{State: f.State})
		return nil
	}
	q := t.db.query("").add("UPDATE {t} SET due_ms = ?, maybe = (maybe OR ?) WHERE id = ?", f.DueMs, f.Maybe, number)
	if _, err := q.exec(ctx, t.tx); err != nil {
		return fmt.Errorf("move row: %w", err)
	}
	return nil
}

// isLive is the condition that a row is that of a message, and lives.
const isLive = "op = 0 AND status IN (0, 1)"

// tokens finds live rows of messages, by their tokens.
func (t *Tx) tokens(ctx context.Context, list []Identity, condition, lock string) (map[Version]int64, error) {
	found := make(map[Version]int64, len(list))
	if list = t.db.possible(list); len(list) == 0 {
		return found, nil
	}
	q := t.db.of(list, "id, queue, message_key, message_id, token", condition, lock)
	err := q.each(ctx, t.tx, func(rows *sql.Rows) error {
		var number int64
		var v Version
		err := rows.Scan(&number, &v.Queue, &v.Key, &v.ID, &v.Token)
		found[v] = number
		return err
	})
	return found, err
}
