package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/delaybridge/delaybridge/delay"
)

const identityColumns = 3

// present reads the current version of a live row and locks it, unless another
// transaction (such as the relay's) has locked it. If that is impossible, it finds
// nothing: MySQL before 8.0.22 requires more rights than a producer has, so it sees
// only comments, as each database does with the other's words; MariaDB with
// innodb_snapshot_isolation, the default since 11.6.2, would end the transaction.
const present = "SELECT COALESCE(NULL /*!80022 , live */ /*M!100600 , live */) FROM %s" +
	" WHERE id = ? /*M!110402 AND NOT @@innodb_snapshot_isolation */" +
	" /*!80022 FOR SHARE SKIP LOCKED */ /*M!100600 LOCK IN SHARE MODE SKIP LOCKED */"

// leaveOut answers the duplicates among the rows, and returns the others. MySQL
// needs it because an INSERT that meets a duplicate locks the gap beside it in the
// unique index, so transactions with other ids wait and deadlock. Duplicates that
// it does not find, the INSERT still detects.
func (n *insertion) leaveOut(ctx context.Context, rows []*row) ([]*row, error) {
	asked := newIdentities(rows)
	if len(asked) > 1 {
		if live, err := n.countLive(ctx, asked); err != nil || live == 0 {
			return unanswered(rows), err
		}
	}
	due, ids, err := n.findLive(ctx, asked)
	if err == nil {
		err = n.findPresent(ctx, due, ids)
	}
	return unanswered(rows), err
}

// findLive answers the rows whose identity has a live message that is not due yet,
// and returns the rows with a due one, and its id.
//
// Under REPEATABLE READ, a plain read shows the past. That suffices for a
// message that is not due: only operations end it, and they count once the
// bridge has applied them. A due message may have been published since.
func (n *insertion) findLive(ctx context.Context, rows []*row) (due []*row, ids []any, err error) {
	args := make([]any, 0, identityColumns*len(rows))
	for _, r := range rows {
		args = append(args, n.queue, r.message.Key, r.message.ID)
	}
	live, err := n.look(ctx, n.tx, "SELECT CASE WHEN due_ms > "+n.now()+" THEN 0 ELSE id END FROM "+n.table+
		" WHERE queue = ? AND message_key = ? AND message_id = ? AND live = 1", len(rows), args)
	if err != nil {
		return nil, nil, err
	}
	for i, r := range rows {
		switch {
		case live[i].Valid && live[i].Int64 == 0:
			r.result.Err = errDuplicate
		case live[i].Valid:
			due, ids = append(due, r), append(ids, live[i].Int64)
		}
	}
	return due, ids, nil
}

// findPresent answers the rows whose identity has a message that is live now,
// which it reads by id. That locks no gap, but it does lock the bridge out of
// the row, so it is not used for messages that are not due yet.
func (n *insertion) findPresent(ctx context.Context, rows []*row, ids []any) error {
	live, err := n.look(ctx, n.tx, fmt.Sprintf(present, n.table), len(rows), ids)
	if err != nil {
		return err
	}
	for i, r := range rows {
		if live[i].Valid {
			r.result.Err = errDuplicate
		}
	}
	return nil
}

// countLive counts the identities that have a live message. Most batches have no
// duplicate, and this costs a third of insertion.look. The join has the same
// plan whatever the statistics say, and needs no memory of the range optimizer.
func (n *insertion) countLive(ctx context.Context, rows []*row) (int, error) {
	args := make([]any, 0, identityColumns*len(rows))
	for _, r := range rows {
		args = append(args, r.message.Key, r.message.ID)
	}
	query := "SELECT count(*) FROM (SELECT ? AS message_key, ? AS message_id" + strings.Repeat(" UNION ALL SELECT ?, ?", len(rows)-1) +
		") AS asked STRAIGHT_JOIN " + n.table + " AS t FORCE INDEX (" + n.name() + "_live) ON t.queue = ?" +
		" AND t.message_key = asked.message_key AND t.message_id = asked.message_id AND t.live = 1"
	var count int
	err := n.scanRow(ctx, n.tx, query, append(args, n.queue), &count)
	return count, err
}

// newIdentities returns the rows whose identity the table may have, and answers
// those that repeat the identity of an earlier row.
func newIdentities(rows []*row) []*row {
	asked := make([]*row, 0, len(rows))
	seen := make(map[delay.Ref]bool, len(rows))
	for _, r := range rows {
		switch {
		case seen[r.result.Ref]:
			r.result.Err = errDuplicate
		case !r.newID:
			asked = append(asked, r)
		}
		seen[r.result.Ref] = true
	}
	return asked
}

func unanswered(rows []*row) []*row {
	left := make([]*row, 0, len(rows))
	for _, r := range rows {
		if r.result.Err == nil {
			left = append(left, r)
		}
	}
	return left
}

// look runs a query several times in one statement. Each answer is a
// column, since not every [Tx] can read more than one row.
func (o *Outbox) look(ctx context.Context, tx Tx, query string, times int, args []any) ([]sql.NullInt64, error) {
	return o.lookBoth(ctx, tx, []string{query}, times, args)
}

// lookBoth is look for several queries, whose answers alternate.
func (o *Outbox) lookBoth(ctx context.Context, tx Tx, queries []string, times int, args []any) ([]sql.NullInt64, error) {
	if times == 0 {
		return nil, nil
	}
	query := strings.Join(queries, "), (")
	answers, places := make([]sql.NullInt64, len(queries)*times), make([]any, len(queries)*times)
	for i := range answers {
		places[i] = &answers[i]
	}
	all := strings.TrimSuffix(strings.Repeat("("+query+"), ", times), ", ")
	return answers, o.scanRow(ctx, tx, "SELECT "+all, args, places...)
}
