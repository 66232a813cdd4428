package table

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
)

// settle is the transaction of [EndedRows.Settle].
func (t *Tx) settle(ctx context.Context, fates []Fate) ([]FateResult, error) {
	list := make([]Identity, len(fates))
	for i, f := range fates {
		list[i] = f.Identity
	}
	locked, err := t.lockTokens(ctx, list)
	if err != nil {
		return nil, fmt.Errorf("lock rows: %w", err)
	}
	open, err := t.open(ctx, list)
	if err != nil {
		return nil, fmt.Errorf("look for open rows: %w", err)
	}
	operated, live := map[Identity]bool{}, map[Version]bool{}
	for _, r := range open {
		if r.Verb == VerbSchedule {
			live[r.Version()] = true
		} else {
			operated[r.Identity] = true
		}
	}
	outcome := make([]FateResult, len(fates))
	updates := Updates{}
	for i, f := range fates {
		number, mine := locked[f.Version]
		switch {
		case operated[f.Identity], !mine && live[f.Version]:
			outcome[i] = FateBusy
		case !mine:
			outcome[i] = FateAbsent
		default:
			outcome[i] = FateSettled
			if err := t.settleOne(ctx, number, f, updates); err != nil {
				return nil, err
			}
		}
	}
	return outcome, t.Write(ctx, updates)
}

func (t *Tx) settleOne(ctx context.Context, number int64, f Fate, updates Updates) error {
	if f.State != StateStored {
		updates.Set(number, Update{State: f.State, Maybe: f.Maybe})
		return nil
	}
	q := t.db.query("").add("UPDATE {t} SET due_ms = ?, maybe = (maybe OR ?) WHERE id = ?", f.DueMs, f.Maybe, number)
	if _, err := q.exec(ctx, t.tx); err != nil {
		return fmt.Errorf("move row: %w", err)
	}
	return nil
}

// lockTokens locks the live rows of messages that no other transaction holds, by their numbers
// like lockOpen, and returns them by token.
func (t *Tx) lockTokens(ctx context.Context, list []Identity) (map[Version]int64, error) {
	open, err := t.open(ctx, list)
	if err != nil {
		return nil, err
	}
	var numbers []int64
	for _, r := range open {
		if r.Verb == VerbSchedule {
			numbers = append(numbers, r.Number)
		}
	}
	slices.Sort(numbers)
	found := make(map[Version]int64, len(numbers))
	for chunk := range slices.Chunk(numbers, lockChunk) {
		q := t.db.query("SELECT id, queue, message_key, message_id, token").from(byNumber).add(" WHERE id").ids(chunk).
			add(" AND op + 0 = 0 AND status + 0 IN (0, 1) ORDER BY id FOR UPDATE SKIP LOCKED")
		err := q.each(ctx, t.tx, func(rows *sql.Rows) error {
			var number int64
			var v Version
			err := rows.Scan(&number, &v.Queue, &v.Key, &v.ID, &v.Token)
			found[v] = number
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// tokens returns the numbers of the identities' live rows that also meet a condition, by
// token. It takes no lock.
func (t *Tx) tokens(ctx context.Context, list []Identity, condition string) (map[Version]int64, error) {
	found := make(map[Version]int64, len(list))
	if list = t.db.possible(list); len(list) == 0 {
		return found, nil
	}
	q := t.db.query("").of(byOpen, list, "id, queue, message_key, message_id, token", "{live}"+condition, "")
	err := q.each(ctx, t.tx, func(rows *sql.Rows) error {
		var number int64
		var v Version
		err := rows.Scan(&number, &v.Queue, &v.Key, &v.ID, &v.Token)
		found[v] = number
		return err
	})
	return found, err
}
