package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// mergeMargin is how far in the future the due times of a message and of its pending
// reschedule must be for another reschedule to be merged. As long as the transaction is
// open, the bridge cannot handle the row.
const mergeMargin = time.Minute

// merged returns an operation's column revision. For a reschedule into which others may be merged,
// it is the due time in force, instead of due_ms, and no index has it. For all other operations it
// is 0; on a reschedule, 0 is the relay's note that it may try it. After that note the row must
// not change, because Redis may have applied it without our knowing. See docs/model/Merge.tla.
func (o *Outbox) merged(op int, d dueTime) string {
	ms := d.ms
	if !d.relative {
		ms = time.Until(time.UnixMilli(d.ms)).Milliseconds()
	}
	if !o.merges || op != rescheduleCode || ms <= mergeMargin.Milliseconds() { // A row that is due soon is never changed, so the relay has nothing to note.
		return "0"
	}
	return o.constant(d)
}

// constant is a due time as SQL without an argument.
func (o *Outbox) constant(d dueTime) string {
	ms := strconv.FormatInt(max(1, d.ms), 10)
	if d.relative {
		return o.now() + " + " + ms
	}
	return ms
}

// lastOfEach returns the last operation of each identity; earlier ones are merged into it.
func lastOfEach(list []operation) []operation {
	last := make([]operation, 0, len(list))
	for _, it := range list { // They are in the order of their identities.
		if n := len(last); n > 0 && last[n-1].ref == it.ref {
			last = last[:n-1]
		}
		last = append(last, it)
	}
	return last
}

// mergeReschedules writes the due times of a chunk into the pending reschedules of their
// messages. If there is none, or it is locked, it inserts a row, so it never waits.
func (o *Outbox) mergeReschedules(ctx context.Context, tx Tx, queue string, op int, list []operation) error {
	if o.dialect == MySQL {
		return o.mergeByNumber(ctx, tx, queue, op, list)
	}
	if len(list) == 1 {
		return o.mergeOne(ctx, tx, queue, op, &list[0])
	}
	values, args := make([]string, len(list)), []any{}
	for i, it := range list {
		values[i] = fmt.Sprintf("(%[1]s, %[1]s, %[1]s, %[1]s, %[2]s, %[3]t)", o.text(), o.dueSQL(it.due), o.merged(op, it.due) != "0")
		args = append(args, queue, it.ref.Key, it.ref.ID, it.token, it.due.ms)
	}
	// First find the newest operation, then lock it: a search that skips locked rows would
	// find an older one. If the row has changed in between, the lock shows it.
	ofItem := strings.NewReplacer("queue = ? AND message_key = ? AND message_id = ?",
		"queue = w.queue AND message_key = w.message_key AND message_id = w.message_id").Replace
	query := "WITH wanted (queue, message_key, message_id, token, due_ms, merges) AS (VALUES " + strings.Join(values, ", ") + ")," +
		" held AS (SELECT t.id, w.due_ms FROM wanted w CROSS JOIN LATERAL (SELECT id" + ofItem(o.fromOperations()) + " ORDER BY id DESC LIMIT 1) AS newest" +
		" JOIN " + o.table + " t ON t.id = newest.id JOIN " + o.table + " h ON h.id = t.target WHERE " + o.isMergeable("t") + " AND " + o.isFar("h") +
		" AND current_setting('transaction_isolation') = 'read committed' FOR UPDATE OF t SKIP LOCKED)," +
		" merged AS (UPDATE " + o.table + " t SET revision = GREATEST(1, held.due_ms) FROM held WHERE t.id = held.id RETURNING t.message_key, t.message_id)" +
		" INSERT INTO " + o.table + operationColumns + fmt.Sprintf(" SELECT w.queue, w.message_key, w.message_id, %d, w.token, w.due_ms, CASE WHEN w.merges THEN w.due_ms ELSE 0 END, (", op) +
		ofItem(o.standingID()) + ") FROM wanted w WHERE NOT EXISTS (SELECT 1 FROM merged m WHERE m.message_key = w.message_key AND m.message_id = w.message_id)"
	_, err := o.exec(ctx, tx, query, args)
	return err
}

// mergeOne is mergeReschedules for one operation, which PostgreSQL plans in half the time.
func (o *Outbox) mergeOne(ctx context.Context, tx Tx, queue string, op int, it *operation) error {
	const of = "queue = ? AND message_key = ? AND message_id = ?"
	mine := strings.NewReplacer(of, "queue = $1 AND message_key = $2 AND message_id = $3").Replace
	due := strings.Replace(o.dueSQL(it.due), "?", "$5", 1)
	revision := "0"
	if o.merged(op, it.due) != "0" {
		revision = due
	}
	query := "WITH merged AS (UPDATE " + o.table + " SET revision = GREATEST(1, " + due + ") WHERE id = (SELECT t.id FROM " + o.table + " t WHERE t.id = (SELECT id" +
		mine(o.fromOperations()) + " ORDER BY id DESC LIMIT 1) AND " + o.isMergeable("t") + " AND EXISTS (SELECT 1 FROM " + o.table + " h WHERE h.id = t.target AND " + o.isFar("h") +
		") AND current_setting('transaction_isolation') = 'read committed' FOR UPDATE SKIP LOCKED) RETURNING 1)" +
		" INSERT INTO " + o.table + operationColumns + fmt.Sprintf(" SELECT CAST($1 AS text), CAST($2 AS text), CAST($3 AS text), %d, CAST($4 AS text), %s, %s, (", op, due, revision) +
		mine(o.standingID()) + ") WHERE NOT EXISTS (SELECT 1 FROM merged)"
	_, err := o.exec(ctx, tx, query, []any{queue, it.ref.Key, it.ref.ID, it.token, it.due.ms})
	return err
}

// isMergeable is the SQL condition for a pending reschedule that may be changed.
func (o *Outbox) isMergeable(t string) string {
	return fmt.Sprintf("%[1]s.op = %[2]d AND %[1]s.status = 0 AND %[1]s.revision > %[3]s + %[4]d", t, rescheduleCode, o.now(), mergeMargin.Milliseconds())
}

// isFar is the SQL condition for a live message that is not due soon.
func (o *Outbox) isFar(t string) string {
	return fmt.Sprintf("%[1]s.op = 0 AND %[1]s.status IN (0, 1) AND %[1]s.due_ms > %[2]s + %[3]d", t, o.now(), mergeMargin.Milliseconds())
}

// mergeByNumber is for MySQL, whose UPDATE cannot skip locked rows and locks the rows that
// its subqueries read.
func (o *Outbox) mergeByNumber(ctx context.Context, tx Tx, queue string, op int, list []operation) error {
	newest := "SELECT CASE WHEN " + o.isMergeable("t") + " AND EXISTS (SELECT 1 FROM " + o.table + " h WHERE h.id = t.target AND " + o.isFar("h") +
		") THEN t.id END" + strings.Replace(o.fromOperations(), " FORCE", " t FORCE", 1) + " ORDER BY t.id DESC LIMIT 1"
	const times = 3 // how often the queries name the identity
	args := make([]any, 0, times*identityColumns*len(list))
	for _, it := range list {
		args = append(append(args, twice(queue, it.ref)...), queue, it.ref.Key, it.ref.ID)
	}
	queries := []string{o.standingID(), newest}
	found, err := o.lookBoth(ctx, tx, queries, len(list), args)
	if err != nil {
		return err
	}
	var numbers []any
	for i := range list {
		if number := found[len(queries)*i+1]; number.Valid {
			numbers = append(numbers, number.Int64)
		}
	}
	lock := "SELECT t.id FROM " + o.table + " t WHERE t.id = ? AND " + o.isMergeable("t") + " /*M!110402 AND NOT @@innodb_snapshot_isolation */ FOR UPDATE SKIP LOCKED"
	locked, err := o.look(ctx, tx, lock, len(numbers), numbers)
	if err != nil {
		return err
	}
	held := map[int64]bool{}
	for _, number := range locked {
		held[number.Int64] = number.Valid
	}
	var cases []string
	var left []operation
	var targets []sql.NullInt64
	var dues, where []any
	for i, it := range list {
		if number := found[len(queries)*i+1]; number.Valid && held[number.Int64] {
			cases, dues, where = append(cases, "WHEN ? THEN "+o.constant(it.due)), append(dues, number.Int64), append(where, number.Int64)
		} else {
			left, targets = append(left, it), append(targets, found[len(queries)*i])
		}
	}
	if len(cases) > 0 {
		// Without the hint it goes over the whole table where the batch is a large part of it, and locks all rows.
		update := "UPDATE " + o.table + " FORCE INDEX (PRIMARY) SET revision = CASE id " + strings.Join(cases, " ") + " END WHERE id IN (?" + strings.Repeat(", ?", len(where)-1) + ")"
		if _, err := o.exec(ctx, tx, update, append(dues, where...)); err != nil {
			return err
		}
	}
	if len(left) == 0 {
		return nil
	}
	return o.insertAbout(ctx, tx, queue, op, left, "?", targets)
}
