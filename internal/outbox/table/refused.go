package table

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
)

// RefusedRows finds messages' rows that were refused, and makes them pending again.
type RefusedRows struct{ db *Database }

// refusedWalk is how many rows one statement of [RefusedRows.After] reads.
const refusedWalk = 20_000

// Tally counts the results of a redrive of rows.
type Tally struct {
	// Redriven are pending again.
	Redriven int
	// Overtaken are left as they are: the table has a later row of their identity, or
	// another message of it lives.
	Overtaken int
	// Busy are locked by another transaction, or no longer refused.
	Busy int
}

// After returns numbers of a queue's refused messages' rows after the given one, if a
// reason is given only those with exactly that reason, and where the next page
// begins, 0 on the last page.
func (r RefusedRows) After(ctx context.Context, queue string, reason *string, after int64) (numbers []int64, next int64, err error) {
	err = r.db.Within(ctx, func(t *Tx) error {
		q := r.db.query("SELECT COALESCE(max(id), 0) FROM (SELECT id").from(byNumber).add(" WHERE id > ? ORDER BY id LIMIT ?) page", after, refusedWalk)
		if err := q.each(ctx, t.tx, func(rows *sql.Rows) error { return rows.Scan(&next) }); err != nil {
			return err
		}
		q = r.db.query("SELECT id").from(byNumber).
			add(" WHERE id > ? AND id <= ? AND queue = ? AND status + 0 = 6 AND op + 0 IN (0, 3)", after, next, r.db.text(queue))
		if reason != nil {
			q.add(" AND reason = ?", *reason)
		}
		return q.add(" ORDER BY id").each(ctx, t.tx, func(rows *sql.Rows) error {
			var number int64
			err := rows.Scan(&number)
			numbers = append(numbers, number)
			return err
		})
	})
	if err != nil {
		return nil, 0, fmt.Errorf("look for refused rows: %w", err)
	}
	return numbers, next, nil
}

// Of returns the numbers of a message's refused rows.
func (r RefusedRows) Of(ctx context.Context, it Identity) (numbers []int64, err error) {
	rows, err := Listing(r).Show(ctx, it.Queue, it.ID, &it.Key)
	for _, e := range rows {
		if e.State == StateRefused.String() && (e.Verb == VerbSchedule.String() || e.Verb == VerbReplace.String()) {
			numbers = append(numbers, e.Number)
		}
	}
	return numbers, err
}

// Redrive makes at most [BatchRows] rows pending again, under their tokens, so that they are
// judged as if they had just been written, topic included. It does so only for the newest row of
// an identity: a caller that cancelled a refused message knows that it is not published, and one
// that scheduled it again has another message. With dry it only counts.
func (r RefusedRows) Redrive(ctx context.Context, numbers []int64, dry bool) (tally Tally, err error) {
	err = r.db.Within(ctx, func(t *Tx) error {
		tally, err = t.redrive(ctx, numbers, dry)
		return err
	})
	if IsDeadlock(err) && len(numbers) > 1 { // Somebody is scheduling one of them.
		tally = Tally{}
		for _, number := range numbers {
			one, err := r.Redrive(ctx, []int64{number}, dry)
			if err != nil {
				return tally, err
			}
			tally.Redriven, tally.Overtaken, tally.Busy = tally.Redriven+one.Redriven, tally.Overtaken+one.Overtaken, tally.Busy+one.Busy
		}
		return tally, nil
	}
	if IsDeadlock(err) {
		return Tally{Busy: 1}, nil
	}
	if err != nil {
		return Tally{}, fmt.Errorf("redrive refused rows: %w", err)
	}
	return tally, nil
}

func (t *Tx) redrive(ctx context.Context, numbers []int64, dry bool) (tally Tally, err error) {
	slices.Sort(numbers)
	rows, err := t.db.rows(ctx, t.tx, t.db.query("SELECT "+columns).from(byNumber).add(" WHERE id").ids(numbers).
		add(" AND status + 0 = 6 AND op + 0 IN (0, 3) ORDER BY id FOR UPDATE SKIP LOCKED"))
	if err != nil {
		return tally, err
	}
	names := make([]Identity, len(rows))
	for i, r := range rows {
		names[i] = r.Identity
	}
	newest, err := t.newest(ctx, names)
	if err != nil {
		return tally, err
	}
	var again []int64
	for _, r := range rows {
		if newest[r.Identity] == r.Number {
			again = append(again, r.Number)
		}
	}
	tally = Tally{Redriven: len(again), Overtaken: len(rows) - len(again), Busy: len(numbers) - len(rows)}
	if dry {
		return tally, nil
	}
	return tally, t.writeTo(ctx, again, t.db.change("status = 0, reason = '', finished_ms = NULL"))
}

// newest returns the numbers of the newest rows of identities, or of their open rows, if
// they have any.
func (t *Tx) newest(ctx context.Context, list []Identity) (map[Identity]int64, error) {
	found := make(map[Identity]int64, len(list))
	for chunk := range slices.Chunk(list, recentGroups) {
		err := t.db.recentQuery(chunk).each(ctx, t.tx, func(rows *sql.Rows) error {
			e := new(endedRow)
			err := rows.Scan(&e.number, &e.Queue, &e.Key, &e.ID, &e.verb, &e.target, &e.how.State, &e.how.Reason)
			found[e.Identity] = max(found[e.Identity], e.number)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	open, err := t.open(ctx, list)
	for _, r := range open {
		found[r.Identity] = r.Number
	}
	return found, err
}
