package outbox

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// reasonLength is how much of a reason a row takes, in characters.
const reasonLength = 1000

// updates are what a transaction does to its rows, by number.
type updates struct {
	rows map[int64]update
}

// set records an update, which comes after those before: what a reschedule has
// moved stays moved, whatever then becomes of the row.
func (c *updates) set(number int64, to update) {
	if to.isZero() {
		return
	}
	if to.move == nil {
		to.move = c.rows[number].move
	}
	if c.rows == nil {
		c.rows = map[int64]update{}
	}
	c.rows[number] = to
}

// ending groups rows that end alike.
type ending struct {
	state  state
	reason string
}

// write applies the updates, in few statements. Messages that were published are
// deleted where the database keeps no ended rows.
func (d *Database) write(ctx context.Context, tx querier, c *updates) error {
	var removed, stored []int64
	ended := map[ending][]int64{}
	for number, update := range c.rows {
		switch {
		case update.move != nil:
			if err := d.writeMoved(ctx, tx, number, update); err != nil {
				return err
			}
		case update.state == statePublished && !d.keeps:
			removed = append(removed, number)
		case update.state == stateStored && update.reason == "":
			stored = append(stored, number)
		case update.state != statePending:
			by := ending{update.state, clean(update.reason)}
			ended[by] = append(ended[by], number)
		}
	}
	if err := d.writeTo(ctx, tx, removed, d.query("DELETE FROM {t} WHERE id")); err != nil {
		return err
	}
	// An operation that was carried out is finished, a stored message is not.
	q := d.query("UPDATE {t} SET status = 1, finished_ms = CASE WHEN op > 0 THEN {now} END WHERE id")
	if err := d.writeTo(ctx, tx, stored, q); err != nil {
		return err
	}
	for by, numbers := range ended {
		q := d.query("").add("UPDATE {t} SET status = ?, reason = ?, finished_ms = {now} WHERE id", int64(by.state), by.reason)
		if err := d.writeTo(ctx, tx, numbers, q); err != nil {
			return err
		}
	}
	return nil
}

func (d *Database) writeTo(ctx context.Context, tx querier, numbers []int64, q *query) error {
	if len(numbers) == 0 {
		return nil
	}
	slices.Sort(numbers) // Whoever else updates several rows does so in this order.
	if _, err := q.ids(numbers).exec(ctx, tx); err != nil {
		return fmt.Errorf("write rows: %w", err)
	}
	return nil
}

// writeMoved gives a message's row the token and due time of a reschedule.
func (d *Database) writeMoved(ctx context.Context, tx querier, number int64, c update) error {
	q := d.query("").add("UPDATE {t} SET status = ?, token = ?, due_ms = ?, revision = ?, maybe = ?",
		int64(c.state), c.move.token, c.move.dueMs, c.move.revision, c.move.maybe)
	if c.state > stateStored {
		q.add(", reason = ?, finished_ms = {now}", clean(c.reason))
	}
	if _, err := q.add(" WHERE id = ?", number).exec(ctx, tx); err != nil {
		return fmt.Errorf("write row: %w", err)
	}
	return nil
}

// clean makes any text fit for the column.
func clean(reason string) string {
	reason = strings.ReplaceAll(strings.ToValidUTF8(reason, "?"), "\x00", "")
	runes := []rune(reason)
	return string(runes[:min(len(runes), reasonLength)])
}
