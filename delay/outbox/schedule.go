package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/seal"
	"github.com/delaybridge/delaybridge/internal/engine/tracing"
)

// The limits of one INSERT; a single message may have more bytes.
const (
	insertRows  = 200
	insertBytes = 1 << 20
)

// Schedule writes a message in the transaction. Once that is committed, the
// bridge publishes the message when it is due. An empty ID becomes a new ULID.
// The ref is set even if there is an error.
//
// [delay.After] counts from the database's clock at the call; the latest due time is the
// end of the year 9999. The errors are [delay.ErrDuplicate], [delay.ErrInvalid], and those
// of the database. ErrDuplicate means that the table has a message of that identity that is
// not published or cancelled (unless [WithConflict] says otherwise); nothing was written,
// and the transaction can go on. If the transaction sees a cancel of that message, its own
// included, the new message follows it, whatever the conflict policy. If two transactions
// do that after the same cancel, the bridge refuses the second, and the row's reason says
// so; to let the last one win, use [delay.Replace].
//
// A topic or header that the queue's broker could never accept is ErrInvalid if
// the broker is known, see [WithSink].
//
// In PostgreSQL at REPEATABLE READ and SERIALIZABLE, a duplicate that was committed
// after the transaction's snapshot is not ErrDuplicate but a serialization failure,
// SQLSTATE 40001, which [errors.As] finds in the driver's own type. Repeat the
// whole transaction then. MySQL answers ErrDuplicate.
func (o *Outbox) Schedule(ctx context.Context, tx Tx, queue string, m delay.Message, when delay.When) (delay.Ref, error) {
	requests := []delay.Request{{Message: m, When: when}}
	results := newResults(requests)
	if err := o.traced(ctx, tx, queue, requests, results); err != nil {
		return results[0].Ref, err
	}
	return results[0].Ref, results[0].Err
}

// ScheduleBatch is [Outbox.Schedule] for several messages and returns one result for
// each, by index. A duplicate or invalid item does not keep the others from being
// written. The error is nil if every message was written. The rows are written in the
// order of their keys and ids, so that two batches never deadlock. Transactions with
// several calls may deadlock, unless the caller keeps such an order.
func (o *Outbox) ScheduleBatch(ctx context.Context, tx Tx, queue string, requests []delay.Request) ([]delay.Result, error) {
	results := newResults(requests)
	if err := o.traced(ctx, tx, queue, requests, results); err != nil {
		for i := range results {
			if results[i].Status == "" && results[i].Err == nil {
				results[i].Err = err
			}
		}
		return results, err
	}
	return results, firstError(results)
}

func newResults(requests []delay.Request) []delay.Result {
	results := make([]delay.Result, len(requests))
	for i := range requests {
		m := &requests[i].Message
		results[i].Ref = delay.Ref{ID: m.ID, Key: m.Key}
		if m.ID == "" {
			results[i].Ref.ID = ulid.Make().String()
		}
	}
	return results
}

func firstError(results []delay.Result) error {
	var first error
	bad := 0
	for _, result := range results {
		if result.Err == nil {
			continue
		}
		if bad++; first == nil {
			first = fmt.Errorf("message %q: %w", result.Ref.ID, result.Err)
		}
	}
	if bad > 1 {
		return fmt.Errorf("%d of %d messages were not written, the first is %w", bad, len(results), first)
	}
	return first
}

// row is a message to insert.
type row struct {
	message *message.Message
	token   string
	headers any // JSON, or nil
	due     dueTime
	tried   bool
	// newID says that the ID was generated here, so nobody else has it.
	newID    bool
	conflict delay.Conflict
	result   *delay.Result
	// op is scheduleCode, or replaceCode if it replaces target, or any message if target is
	// NULL.
	op     int
	target sql.NullInt64
}

// dueTime is a due time, or a delay that the database adds to its clock's time.
type dueTime struct {
	ms       int64
	relative bool
}

// latest is the end of the year 9999, the last that RFC 3339 can write.
var latest = time.Date(10000, time.January, 1, 0, 0, 0, 0, time.UTC)

// resolve checks a due time and rounds it up to milliseconds.
func resolve(when delay.When) (dueTime, error) {
	if err := when.Check(); err != nil {
		return dueTime{}, err
	}
	at, absolute := when.Instant()
	if !absolute {
		d := max(when.Delay(), 0)
		ms := d.Milliseconds()
		if d%time.Millisecond > 0 {
			ms++
		}
		return dueTime{ms: ms, relative: true}, nil
	}
	if at.Before(time.UnixMilli(0)) || !at.Before(latest) {
		return dueTime{}, invalid("due", "at "+at.Format(time.RFC3339), "from 1970 to 9999")
	}
	ms := at.UnixMilli()
	if time.UnixMilli(ms).Before(at) {
		ms++
	}
	return dueTime{ms: ms}, nil
}

// traced is schedule with a span.
func (o *Outbox) traced(ctx context.Context, tx Tx, queue string, requests []delay.Request, results []delay.Result) error {
	spans := tracing.NewSchedules(o.added.tracers, queue)
	ctx, span := spans.Begin(ctx)
	err := o.schedule(ctx, tx, queue, requests, results, spans)
	tracing.End(span, len(results), func(i int) tracing.Item {
		r := &results[i]
		return tracing.Item{
			Topic: requests[i].Message.Topic, ID: r.Ref.ID, Status: string(r.Status), DueAt: r.DueAt, Err: cmp.Or(r.Err, err),
		}
	})
	return err
}

// schedule inserts the valid items. The error is the database's, or one of the
// whole call; an item's error is in its result.
func (o *Outbox) schedule(ctx context.Context, tx Tx, queue string, requests []delay.Request, results []delay.Result, spans *tracing.Schedules) error {
	if err := o.ready(tx, queue); err != nil {
		return err
	}
	tracked, _ := tx.(*Tracked)
	if tracked != nil {
		tx = tracked.tx
		tracked.pin(ctx, queue)
	}
	limits := o.limits(queue)
	for i := range requests {
		if c := requests[i].Conflict; !isKnown(c) {
			results[i].Err = invalidConflict(c)
		}
	}
	rows := make([]*row, 0, len(requests))
	for _, i := range inOrder(results) {
		if results[i].Err != nil {
			continue
		}
		r, err := o.newRow(ctx, spans, queue, limits, &requests[i], &results[i])
		if err != nil {
			results[i].Err = err
			continue
		}
		if tracked != nil {
			if err := tracked.prepare(ctx, r); err != nil {
				return err
			}
		}
		rows = append(rows, r)
	}
	if len(rows) == 0 {
		return nil
	}
	writer := insertion{o, tx, queue}
	for chunk := range chunks(rows, canRead(tx)) {
		if err := writer.write(ctx, chunk); err != nil {
			return o.failed("schedule", err)
		}
		if tracked != nil {
			tracked.remember(queue, chunk)
		}
	}
	if err := o.wake(ctx, tx); err != nil {
		return o.failed("notify", err)
	}
	return nil
}

// inOrder returns the indexes of the items in the order of their identities. All code that
// writes several rows uses this order, so two transactions that write the same rows wait for
// each other and do not deadlock.
func inOrder(results []delay.Result) []int {
	order := make([]int, len(results))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(results[a].Ref.Key, results[b].Ref.Key), cmp.Compare(results[a].Ref.ID, results[b].Ref.ID))
	})
	return order
}

// toMessage returns the message as it is stored: sealed, if the outbox has keys.
func (o *Outbox) toMessage(queue string, m *delay.Message, ref delay.Ref) (*message.Message, error) {
	headers, err := message.WithTags(m.Headers, m.Tags)
	if err == nil {
		headers, err = message.WithFirst(headers, false)
	}
	if err == nil {
		headers, err = message.WithLate(headers, message.Late{After: m.Late.After, Then: message.LateAction(m.Late.Then)})
	}
	stored := &message.Message{Queue: queue, ID: ref.ID, Key: ref.Key, Topic: m.Topic, Headers: headers, Body: m.Body}
	if err == nil {
		err = seal.Seal(o.added.keys, stored)
	}
	return stored, err
}

func (o *Outbox) newRow(ctx context.Context, spans *tracing.Schedules, queue string, limits limits, request *delay.Request, result *delay.Result) (*row, error) {
	m, err := o.toMessage(queue, &request.Message, result.Ref)
	if err == nil {
		spans.Mark(ctx, m, limits.maxSize)
		err = m.Validate(limits.sink, limits.maxSize)
	}
	if err == nil {
		err = limits.topics.Check(m.Topic)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", delay.ErrInvalid, err)
	}
	due, err := resolve(request.When.For(result.Ref))
	if err != nil {
		return nil, err
	}
	r := &row{
		message: m, token: processTokens.next(time.Now()), due: due, newID: request.Message.ID == "", result: result,
		conflict: cmp.Or(request.Conflict, o.conflict),
	}
	if len(m.Headers) > 0 {
		text, err := json.Marshal(m.Headers)
		if err != nil {
			return nil, fmt.Errorf("encode headers: %w", err)
		}
		r.headers = string(text)
	}
	return r, nil
}

// chunks cuts rows into statements. If the transaction cannot read rows, each row gets
// its own statement, so that the count of inserted rows tells whether it was a duplicate.
func chunks(rows []*row, many bool) func(yield func([]*row) bool) {
	return func(yield func([]*row) bool) {
		start, bytes := 0, 0
		for i, r := range rows {
			size := r.message.Size()
			if i > start && (!many || i-start == insertRows || bytes+size > insertBytes) {
				if !yield(rows[start:i]) {
					return
				}
				start, bytes = i, 0
			}
			bytes += size
		}
		yield(rows[start:])
	}
}

// insertion writes rows of one queue through one transaction.
type insertion struct {
	*Outbox
	tx    Tx
	queue string
}

// write inserts the rows that are no duplicates, and then applies the conflict policy
// to the others.
func (n *insertion) write(ctx context.Context, rows []*row) error {
	left := rows
	var err error
	if n.dialect == MySQL && canRead(n.tx) {
		left, err = n.leaveOut(ctx, rows)
	}
	if err == nil && len(left) > 0 {
		err = n.insert(ctx, left)
	}
	if err != nil {
		return err
	}
	return n.settleConflicts(ctx, rows)
}

// insert writes rows with one statement. The database leaves out duplicates
// without an error, which in PostgreSQL would end the transaction.
func (n *insertion) insert(ctx context.Context, rows []*row) error {
	const columns = 8 // with an argument
	var query strings.Builder
	verb, end := "INSERT INTO ", " ON CONFLICT (queue, message_key, message_id) WHERE op = 0 AND status IN (0, 1) DO NOTHING"
	switch replaces := rows[0].op == replaceCode; {
	case replaces:
		end = ""
	case n.dialect == MySQL:
		// All values are checked, so IGNORE can only ignore duplicates.
		verb, end = "INSERT IGNORE INTO ", ""
	}
	query.WriteString(verb + n.table + " (queue, message_key, message_id, op, target, token, tried, due_ms, topic, headers, body) VALUES ")
	args := make([]any, 0, columns*len(rows))
	var values string
	for i, r := range rows {
		switch {
		case i == 0:
			values = n.values(r)
			query.Grow((len(values) + 2) * len(rows))
		case r.tried != rows[i-1].tried || r.target != rows[i-1].target || r.due.relative != rows[i-1].due.relative:
			values = n.values(r)
		}
		if i > 0 {
			query.WriteString(", ")
		}
		query.WriteString(values)
		body := r.message.Body
		if body == nil {
			body = []byte{}
		}
		args = append(args, n.queue, r.message.Key, r.message.ID, r.token, r.due.ms, r.message.Topic, r.headers, body)
	}
	inserted, err := n.exec(ctx, n.tx, query.String()+end, args)
	if err != nil {
		return err
	}
	return n.sortOut(ctx, rows, int(inserted))
}

// values are the placeholders of a row. Most rows of a statement have the same.
func (n *insertion) values(r *row) string {
	text := n.text()
	return "(" + strings.Join([]string{
		text, text, text, strconv.Itoa(r.op), sqlNumber(r.target), text, sqlBool(r.tried), n.dueSQL(r.due), text, n.object(), n.binary(),
	}, ", ") + ")"
}

func sqlBool(b bool) string {
	if b {
		return "TRUE"
	}
	return "FALSE"
}

func sqlNumber(n sql.NullInt64) string {
	if n.Valid {
		return strconv.FormatInt(n.Int64, 10)
	}
	return "NULL"
}

func (o *Outbox) dueSQL(d dueTime) string {
	if d.relative {
		return o.now() + " + " + o.number()
	}
	return o.number()
}

var errDuplicate = fmt.Errorf("%w: the outbox has one of that identity, which is not published or cancelled", delay.ErrDuplicate)

// sortOut finds out which rows were inserted.
func (n *insertion) sortOut(ctx context.Context, rows []*row, inserted int) error {
	for _, r := range rows {
		mine := inserted == len(rows)
		if !mine && inserted > 0 {
			var err error
			if mine, err = n.isWritten(ctx, r); err != nil {
				return err
			}
		}
		if !mine {
			r.result.Err = errDuplicate
			continue
		}
		r.result.Err, r.result.Status = nil, delay.Created
		if r.op == replaceCode && !r.target.Valid {
			r.result.Status = delay.Replaced
		}
		if !r.due.relative {
			r.result.DueAt = time.UnixMilli(r.due.ms)
		}
	}
	return nil
}

// isWritten reports whether the row is in the table. It looks for the token,
// because an older snapshot may show another live message of the identity as well.
func (n *insertion) isWritten(ctx context.Context, r *row) (bool, error) {
	var id int64
	err := n.scanRow(ctx, n.tx, "SELECT id"+n.fromLive()+" AND token = ?",
		[]any{n.queue, r.message.Key, r.message.ID, r.token}, &id)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// fromLive finds the live message of an identity. Under REPEATABLE READ and above it may
// find two: one that has ended since the snapshot, and the transaction's own. It uses the
// unique index, however many rows the identity had before; MySQL would not do so by
// itself, and if it knew that the index is unique, it would stop at one.
func (o *Outbox) fromLive() string {
	const of = " WHERE queue = ? AND message_key = ? AND message_id = ?"
	if o.dialect == MySQL {
		return " FROM " + o.table + " FORCE INDEX (" + o.name() + "_live)" + of + " AND live > 0"
	}
	return " FROM " + o.table + of + " AND op = 0 AND status IN (0, 1)"
}

// fromOperations finds the pending cancels, reschedules and replaces of an identity, by
// their own index.
func (o *Outbox) fromOperations() string {
	const of = " WHERE queue = ? AND message_key = ? AND message_id = ?"
	if o.dialect == MySQL {
		return " FROM " + o.table + " FORCE INDEX (" + o.name() + "_open)" + of + " AND finished_ms IS NULL AND op > 0 AND status = 0"
	}
	return " FROM " + o.table + of + " AND op * 1 > 0 AND status * 1 = 0" // The expressions of the index.
}

// standingID selects the id of the message that an operation is about: the newest one that
// lives or will replace it. Its arguments are the identity, twice.
func (o *Outbox) standingID() string {
	const newest = " ORDER BY id DESC LIMIT 1), 0)"
	return "SELECT NULLIF(GREATEST(COALESCE((SELECT id" + o.fromLive() + newest + ", COALESCE((SELECT id" + o.fromOperations() +
		fmt.Sprintf(" AND op = %d", replaceCode) + newest + "), 0)"
}
