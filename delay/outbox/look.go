package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/delaybridge/delaybridge/delay"
)

// present reads the present of a live row and locks it, unless somebody else has,
// such as the relay. Each database takes the other's words for a comment. MySQL
// before 8.0.22 takes both for that: it would want more rights than a producer has.
const present = "SELECT COALESCE(NULL /*!80022 , live */ /*M!100600 , live */) FROM %s WHERE id = ?" +
	" /*!80022 FOR SHARE SKIP LOCKED */ /*M!100600 LOCK IN SHARE MODE SKIP LOCKED */"

// leaveOut answers the duplicates among the rows, and returns the others. It is
// for MySQL, where an INSERT that meets a duplicate locks the gap beside it in the
// unique index: transactions with other ids wait then, and deadlock. What this
// does not find, the INSERT still meets.
//
// Under REPEATABLE READ, a plain read shows the past. Its word is taken for a
// message that is not due: only operations end that, and they count when the
// bridge has done them. One that is due may have been published since, so its row
// is looked at again, with a lock that has no gap. That lock keeps the bridge from
// the row, hence none while the bridge has time to take it.
func (o *Outbox) leaveOut(ctx context.Context, tx Tx, queue string, rows []*row) ([]*row, error) {
	asked := newIdentities(rows)
	var identities []any
	for _, r := range asked {
		identities = append(identities, queue, r.message.Key, r.message.ID)
	}
	live, err := o.look(ctx, tx, o.liveOrDue(), len(asked), identities)
	if err != nil {
		return nil, err
	}
	var due []*row
	var ids []any
	for i, r := range asked {
		switch {
		case live[i].Valid && live[i].Int64 == 0:
			r.result.Err = errDuplicate
		case live[i].Valid:
			due, ids = append(due, r), append(ids, live[i].Int64)
		}
	}
	if live, err = o.look(ctx, tx, fmt.Sprintf(present, o.table), len(due), ids); err != nil {
		return nil, err
	}
	for i, r := range due {
		if live[i].Valid {
			r.result.Err = errDuplicate
		}
	}
	return unanswered(rows), nil
}

// liveOrDue selects 0 where an identity has a live message, and the row's id where
// that is due.
func (o *Outbox) liveOrDue() string {
	return "SELECT CASE WHEN due_ms > " + o.now() + " THEN 0 ELSE id END FROM " + o.table +
		" WHERE queue = ? AND message_key = ? AND message_id = ? AND live = 1"
}

// newIdentities returns the rows whose identity another may have, and answers
// those that have one of a row before them.
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

// look runs a query several times at once. Each answer is a column, since not
// every [Tx] can read more than one row.
func (o *Outbox) look(ctx context.Context, tx Tx, query string, times int, args []any) ([]sql.NullInt64, error) {
	if times == 0 {
		return nil, nil
	}
	answers, places := make([]sql.NullInt64, times), make([]any, times)
	for i := range answers {
		places[i] = &answers[i]
	}
	all := strings.TrimSuffix(strings.Repeat("("+query+"), ", times), ", ")
	return answers, o.scanRow(ctx, tx, "SELECT "+all, args, places...)
}
