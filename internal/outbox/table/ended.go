package table

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"time"
)

const (
	// purgeBatch is how many rows one transaction deletes.
	purgeBatch = 1000
	// parts is how many parts are made of a batch of which a row waits for a producer, and
	// partsWithin how long: each costs a session's innodb_lock_wait_timeout.
	parts, partsWithin = 10, 10 * time.Second
)

// EndedRows records in rows how their messages ended, and purges such rows.
type EndedRows struct{ db *Database }

// Version is a message under one token: a reschedule gives it another one.
type Version struct {
	Identity
	Token string
}

// Fate is what happened to a row's message in Redis: published, cancelled, or
// stored with another due time.
type Fate struct {
	Version
	State State
	// DueMs is the new due time of a stored message. Maybe says that a copy of a stored or cancelled one may
	// be out.
	DueMs int64
	Maybe bool
}

// FateResult says what became of a fate that a database was asked to record.
type FateResult int

const (
	// FateAbsent means that no row lives under that token.
	FateAbsent FateResult = iota
	// FateSettled means that the row has the fate now.
	FateSettled
	// FateBusy means that another transaction works on the row, or will.
	FateBusy
)

// Settle records how the messages of at most 1,000 rows ended, in one transaction
// if it can. By index it returns what the database knew.
//
// A row that a relay holds, or that has pending operations, is left alone,
// because the token in force may be about to change. So a fate may be forgotten
// only if neither is the case and no row lives under its token. Settle looks
// for such rows after it has tried the locks, so it sees changes in between.
//
// A producer's open transaction may hold one of these rows in MySQL's unique index, for a duplicate,
// or what is beside it. Then the others are settled in smaller parts, and the row is busy.
func (e EndedRows) Settle(ctx context.Context, fates []Fate) ([]FateResult, error) {
	return e.settle(ctx, fates, time.Now().Add(partsWithin))
}

// settle makes no more parts after that time.
func (e EndedRows) settle(ctx context.Context, fates []Fate, until time.Time) (outcome []FateResult, err error) {
	err = e.db.Within(ctx, func(t *Tx) error {
		outcome, err = t.settle(ctx, fates)
		return err
	})
	switch {
	case err == nil:
		return outcome, nil
	case !IsDeadlock(err):
		return nil, fmt.Errorf("settle rows: %w", err)
	case len(fates) == 1 || time.Now().After(until):
		return slices.Repeat([]FateResult{FateBusy}, len(fates)), nil
	}
	outcome = nil
	for part := range slices.Chunk(fates, (len(fates)+parts-1)/parts) {
		results, err := e.settle(ctx, part, until)
		if err != nil {
			return nil, err
		}
		outcome = append(outcome, results...)
	}
	return outcome, nil
}

// Among returns those of the versions that have ended according to a row, and how: under the token
// that the row had at its end, its first one, or that of a reschedule in between.
func (e EndedRows) Among(ctx context.Context, list []Version) (map[Version]State, error) {
	found := map[Version]State{}
	names, tokens := make([]Identity, len(list)), make([]string, len(list))
	for i, v := range list {
		names[i], tokens[i] = v.Identity, v.Token
	}
	if names = e.db.possible(names); len(names) == 0 {
		return found, nil
	}
	err := e.db.Within(ctx, func(t *Tx) error {
		moved := map[Version]int64{} // the numbers of the messages that reschedules have moved
		err := e.amongQuery(names, tokens).each(ctx, t.tx, func(rows *sql.Rows) error {
			var v Version
			var verb Verb
			var target sql.NullInt64
			var first string
			var how State
			err := rows.Scan(&v.Queue, &v.Key, &v.ID, &verb, &target, &v.Token, &first, &how)
			if verb == VerbReschedule {
				moved[v] = target.Int64
				return err
			}
			found[v] = how
			if first != "" {
				found[Version{v.Identity, first}] = how
			}
			return err
		})
		if err != nil || len(moved) == 0 {
			return err
		}
		ends, err := t.ends(ctx, slices.Collect(maps.Values(moved)))
		for v, number := range moved {
			if end, ok := ends[number]; ok && end.Identity == v.Identity {
				found[v] = end.how.State
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read ended rows: %w", err)
	}
	return found, nil
}

// amongQuery is the statement of Among.
func (e EndedRows) amongQuery(names []Identity, tokens []string) *query {
	in, args := e.db.in(tokens)
	return e.db.query("").of(byIdentity, names, "queue, message_key, message_id, op, target, token, uid, status",
		"op = 0 AND status > 1 AND (token"+in+" OR uid"+in+") OR op = 2 AND status = 1 AND token"+in, "", slices.Concat(args, args, args)...)
}

// Living returns the live rows of the identities, or only the pending ones, as they are
// now: their numbers, by the versions in force.
func (e EndedRows) Living(ctx context.Context, list []Identity, pending bool) (found map[Version]int64, err error) {
	which := ""
	if pending {
		which = " AND status = 0"
	}
	err = e.db.Within(ctx, func(t *Tx) error {
		found, err = t.tokens(ctx, list, which)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read live rows: %w", err)
	}
	return found, nil
}

// Purge deletes a batch of rows that finished longer ago than keep, but not before
// fromMs. If there are more, they finished at lastMs or later. It keeps the rows of
// a message with a pending operation, because they say what overtook that.
func (e EndedRows) Purge(ctx context.Context, keep time.Duration, fromMs int64) (lastMs int64, more bool, err error) {
	return e.purge(ctx, e.purgeQuery(keep, fromMs), fromMs)
}

// PurgeOperations is Purge for cancels and reschedules that finished before an instant. It keeps
// those of a refused message, which may be tried again only if none of them has cancelled it.
func (e EndedRows) PurgeOperations(ctx context.Context, fromMs, beforeMs int64) (lastMs int64, more bool, err error) {
	q := e.db.query("SELECT id, queue, message_key, message_id, finished_ms").from(byFinished).
		add(" WHERE finished_ms >= ? AND finished_ms < ? AND op + 0 > 0 AND status + 0 <> 6 AND reason <> ?", fromMs, beforeMs, ReasonRefused).
		add(" ORDER BY finished_ms LIMIT ? FOR UPDATE SKIP LOCKED", purgeBatch)
	return e.purge(ctx, q, fromMs)
}

// purge deletes the rows that q has locked.
func (e EndedRows) purge(ctx context.Context, q *query, fromMs int64) (lastMs int64, more bool, err error) {
	err = e.db.Within(ctx, func(t *Tx) error {
		var list []*Row
		err := q.each(ctx, t.tx, func(rows *sql.Rows) error {
			r := new(Row)
			list = append(list, r)
			return rows.Scan(&r.Number, &r.Queue, &r.Key, &r.ID, &lastMs)
		})
		if more = len(list) == purgeBatch; err != nil || len(list) == 0 {
			return err
		}
		if list, err = t.unoperated(ctx, list); err != nil {
			return err
		}
		if len(list) == 0 && lastMs == fromMs {
			lastMs++ // All of that instant that a batch can hold stay.
		}
		var numbers []int64
		for _, r := range list {
			numbers = append(numbers, r.Number)
		}
		return t.remove(ctx, numbers)
	})
	if err != nil {
		return 0, false, fmt.Errorf("purge finished rows: %w", err)
	}
	return lastMs, more, nil
}

// purgeQuery is the statement that locks the rows of a batch.
func (e EndedRows) purgeQuery(keep time.Duration, fromMs int64) *query {
	return e.db.query("SELECT id, queue, message_key, message_id, finished_ms").from(byFinished).
		add(" WHERE finished_ms >= ? AND finished_ms < {now} - ? ORDER BY finished_ms LIMIT ? FOR UPDATE SKIP LOCKED", fromMs, keep.Milliseconds(), purgeBatch)
}
