package table

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// reasonLength limits the reason in a row, in characters.
const reasonLength = 1000

// ReasonRefused is the reason of an operation that did nothing because its message had been refused.
const ReasonRefused = "the message was refused"

// ReasonCopy is the reason of an end after which a copy may be out.
const ReasonCopy = "a copy may be out"

// Update is the change of one row. The zero value changes nothing.
type Update struct {
	State  State // 0: stays pending, or what it is
	Reason string
	Move   *Move
	// Maybe records that a copy may be out. No later update reverts that.
	Maybe bool
	// Lives says that the message of a replace is now the live one of its identity. No
	// later update reverts that, either.
	Lives bool
}

// Move is what a reschedule changes in the message's row.
type Move struct {
	Token    string
	DueMs    int64
	Revision int64
	Maybe    bool // a copy may be out
}

// IsZero reports whether the update changes nothing.
func (u Update) IsZero() bool { return u == Update{} }

// End returns the end of a message's row for later operations: unknown if it was
// cancelled when a copy may have been out.
func (u Update) End() State {
	if u.State == StateCancelled && u.Reason != "" {
		return StateUnknown
	}
	return u.State
}

// Updates are a transaction's updates of its rows, by number.
type Updates map[int64]Update

// Set records an update on top of earlier ones: a row that a reschedule has
// moved stays moved, whatever follows.
func (u Updates) Set(number int64, to Update) {
	if to.IsZero() {
		return
	}
	if to.Move == nil {
		to.Move = u[number].Move
	}
	to.Maybe = to.Maybe || u[number].Maybe
	to.Lives = to.Lives || u[number].Lives
	u[number] = to
}

// ending groups rows that end alike.
type ending struct {
	state  State
	reason string
}

// Write applies the updates, in few statements. Messages that were published are
// deleted where the database keeps no ended rows.
func (t *Tx) Write(ctx context.Context, updates Updates) error {
	var removed, stored, maybe, lives []int64
	ended := map[ending][]int64{}
	for _, number := range slices.Sorted(maps.Keys(updates)) { // All code that writes several rows uses this order.
		update := updates[number]
		if update.Maybe {
			maybe = append(maybe, number)
		}
		if update.Lives {
			lives = append(lives, number)
		}
		switch {
		case update.Move != nil:
			if err := t.writeMoved(ctx, number, update); err != nil {
				return err
			}
		case update.State == StatePublished && !t.db.keeps:
			removed = append(removed, number)
		case update.State == StateStored && update.Reason == "":
			stored = append(stored, number)
		case update.State != StatePending:
			by := ending{update.State, clean(update.Reason)}
			ended[by] = append(ended[by], number)
		}
	}
	if err := t.remove(ctx, removed); err != nil {
		return err
	}
	if err := t.writeTo(ctx, maybe, t.db.change("maybe = TRUE")); err != nil {
		return err
	}
	for _, by := range slices.SortedFunc(maps.Keys(ended), func(a, b ending) int {
		return cmp.Or(cmp.Compare(a.state, b.state), cmp.Compare(a.reason, b.reason))
	}) {
		numbers := ended[by]
		q := t.db.change("status = ?, reason = ?, finished_ms = {now}", int64(by.state), by.reason)
		if by == (ending{state: StateCancelled}) {
			q = t.db.change("status = ?, reason = CASE WHEN op = 0 AND maybe THEN ? ELSE '' END, finished_ms = {now}", int64(by.state), ReasonCopy)
		}
		if err := t.writeTo(ctx, numbers, q); err != nil {
			return err
		}
	}
	// One message lives, so those before them have ended above.
	if err := t.writeTo(ctx, lives, t.db.change("op = 0, target = NULL")); err != nil {
		return err
	}
	// An operation that was carried out is finished, a stored message is not.
	return t.writeTo(ctx, stored, t.db.change("status = 1, finished_ms = CASE WHEN op > 0 THEN {now} END"))
}

// change begins an UPDATE of rows that writeTo names. Without the hint MySQL goes over the whole
// table where they are a large part of it, and waits a moment for each row that another
// transaction has locked.
func (d *Database) change(set string, args ...any) *query {
	return d.query("UPDATE {t}").hinted(byNumber).add(" SET "+set+" WHERE id", args...)
}

// remove deletes rows that the transaction has locked, and looks at no others: a DELETE waits for
// every locked row that it looks at, and for as long as Redis takes where a lane has locked it.
func (t *Tx) remove(ctx context.Context, numbers []int64) error {
	if len(numbers) == 0 {
		return nil
	}
	slices.Sort(numbers)
	if _, err := t.db.removalOf(numbers).exec(ctx, t.tx); err != nil {
		return fmt.Errorf("delete rows: %w", err)
	}
	return nil
}

func (d *Database) removalOf(numbers []int64) *query {
	var list any = numbers
	if !d.dialect.arrays {
		text, _ := json.Marshal(numbers) // It always succeeds.
		list = string(text)
	}
	return d.query("").add(d.dialect.removal, list)
}

// writeTo applies a change to rows that the transaction has locked.
func (t *Tx) writeTo(ctx context.Context, numbers []int64, q *query) error {
	if len(numbers) == 0 {
		return nil
	}
	slices.Sort(numbers)
	if _, err := q.ids(numbers).exec(ctx, t.tx); err != nil {
		return fmt.Errorf("write rows: %w", err)
	}
	return nil
}

// writeMoved gives a message's row the token and due time of a reschedule.
func (t *Tx) writeMoved(ctx context.Context, number int64, c Update) error {
	// MySQL assigns from left to right, so uid comes before token.
	q := t.db.query("").add("UPDATE {t} SET status = ?, uid = CASE WHEN uid = '' AND token <> ? THEN token ELSE uid END, token = ?,"+
		" due_ms = ?, revision = ?, maybe = (maybe OR ?)",
		int64(c.State), c.Move.Token, c.Move.Token, c.Move.DueMs, c.Move.Revision, c.Move.Maybe)
	if c.State > StateStored {
		q.add(", reason = ?, finished_ms = {now}", clean(c.Reason))
	}
	if _, err := q.add(" WHERE id = ?", number).exec(ctx, t.tx); err != nil {
		return fmt.Errorf("write row: %w", err)
	}
	return nil
}

// clean makes any text valid for the column.
func clean(reason string) string {
	reason = strings.ReplaceAll(strings.ToValidUTF8(reason, "?"), "\x00", "")
	runes := []rune(reason)
	return string(runes[:min(len(runes), reasonLength)])
}
