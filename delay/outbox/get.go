package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// Op is what a row asks for.
type Op string

// The operations.
const (
	OpSchedule   Op = "schedule"
	OpCancel     Op = "cancel"
	OpReschedule Op = "reschedule"
)

// How the table stores the operations.
const (
	scheduleCode = iota
	cancelCode
	rescheduleCode
	// replaceCode is the code of a message that has not yet taken the place of the one before it.
	replaceCode
)

var opNames = []Op{scheduleCode: OpSchedule, cancelCode: OpCancel, rescheduleCode: OpReschedule, replaceCode: OpSchedule}

// State says how far a row has come, or how it ended.
type State string

// The states of a row.
const (
	// Pending: the bridge has not yet brought it to Redis, perhaps because it
	// is not due soon.
	Pending State = "pending"
	// Stored: Redis has the message, with what the row asked for.
	Stored State = "stored"
	// Published: the broker has acknowledged it.
	Published State = "published"
	// Cancelled: the message will not be published. For a cancel: it came in time.
	Cancelled State = "cancelled"
	// TooLate, for a cancel or reschedule: the message was being published, or
	// had been. Nothing was changed.
	TooLate State = "too_late"
	// Unknown, for a cancel or reschedule: it was done, but a copy of the message
	// may have been published before, or the message was never seen.
	Unknown State = "unknown"
	// Refused: the row's Reason says why it can never be scheduled.
	Refused State = "refused"
	// Superseded, for a cancel or reschedule: a later reschedule was applied before it.
	// A reschedule that changed nothing supersedes none.
	Superseded State = "superseded"
)

// states lists the states in the order of their numbers in the table.
var states = []State{Pending, Stored, Published, Cancelled, TooLate, Unknown, Refused, Superseded}

// storedStatus is the number of [Stored].
const storedStatus = 1

// Row is the last operation on a message, as the table has it.
type Row struct {
	Ref   delay.Ref
	Op    Op
	State State
	// Reason is why it was refused.
	Reason string
	// DueAt is the due time in force, or the requested one; zero for a cancel.
	DueAt time.Time
	// CreatedAt is when the row was written, by the database's clock.
	CreatedAt time.Time
	// FinishedAt is when it reached its final state; zero while it is pending or stored.
	FinishedAt time.Time
	// Revision grows with each operation that has a row of its own, see [WithMerge].
	Revision int64
}

// Get returns the last operation on a message, as the transaction or the pool sees
// it, and its state. The errors are [delay.ErrNotFound] if the table has no row of
// that identity (rows are deleted some time after their message has ended),
// [delay.ErrInvalid], and those of the database.
func (o *Outbox) Get(ctx context.Context, tx DB, queue string, ref delay.Ref) (Row, error) {
	if err := o.ready(tx, queue); err != nil {
		return Row{}, err
	}
	if err := message.CheckIdentity(ref.ID, ref.Key); err != nil {
		return Row{}, fmt.Errorf("%w: %w", delay.ErrInvalid, err)
	}
	if tracked, ok := tx.(*Tracked); ok {
		tx = tracked.tx
	}
	row, err := o.newest(ctx, tx, queue, ref)
	if errors.Is(err, sql.ErrNoRows) {
		return Row{}, delay.ErrNotFound
	}
	if err != nil {
		return Row{}, o.failed("get", err)
	}
	return row, nil
}

// rowColumns are the columns that scan reads. A reschedule into which others may be merged has
// its due time in the column revision.
const rowColumns = "id, op, status, reason, CASE WHEN op = 2 AND revision > 0 THEN revision ELSE due_ms END AS due_ms, created_ms, finished_ms, target"

// newest reads the newest row of an identity.
func (o *Outbox) newest(ctx context.Context, tx DB, queue string, ref delay.Ref) (Row, error) {
	identity := []any{queue, ref.Key, ref.ID}
	row, status, target, err := o.scan(ctx, tx, o.newestOf(""), slices.Concat(identity, identity))
	if err != nil {
		return Row{}, err
	}
	row.Ref = ref
	if row.Op != OpReschedule || status != storedStatus {
		return row, nil
	}
	// It was applied, so the message's own row knows what came after. The operation
	// names that row, unless it was written before the message was visible.
	applied := append(identity, row.Revision)
	query, args := o.newestOf(" AND op = 0 AND revision = ?"), slices.Concat(applied, applied)
	if target.Valid {
		query, args = "SELECT "+rowColumns+" FROM "+o.table+" WHERE id = ? AND op = 0 AND revision = ?", []any{target.Int64, row.Revision}
	}
	head, _, _, err := o.scan(ctx, tx, query, args)
	switch {
	case err == nil:
		row.State, row.Reason, row.FinishedAt, row.DueAt = head.State, head.Reason, head.FinishedAt, head.DueAt
	case errors.Is(err, sql.ErrNoRows):
		err = nil
	}
	return row, err
}

// newestOf selects the newest row of an identity that meets a condition. Live
// messages and all other rows have an index each, hence two parts.
func (o *Outbox) newestOf(condition string) string {
	other := " FROM " + o.table
	if o.dialect == MySQL {
		other += " FORCE INDEX (" + o.name() + "_history)"
	}
	other += " WHERE queue = ? AND message_key = ? AND message_id = ? AND (op > 0 OR status > 1)"
	const columns = "SELECT " + rowColumns
	return "SELECT * FROM (" +
		"(" + columns + o.fromLive() + condition + ") UNION ALL " +
		"(" + columns + other + condition + " ORDER BY id DESC LIMIT 1)" +
		// A live message may be older than the one that it replaced.
		") AS newest ORDER BY CASE WHEN op = 0 AND status > 1 THEN 1 ELSE 0 END, id DESC LIMIT 1"
}

func (o *Outbox) scan(ctx context.Context, tx DB, query string, args []any) (row Row, status int, target sql.NullInt64, err error) {
	var (
		op             int
		dueMs, created int64
		finished       sql.NullInt64
	)
	err = o.scanRow(ctx, tx, query, args, &row.Revision, &op, &status, &row.Reason, &dueMs, &created, &finished, &target)
	if err != nil {
		return Row{}, 0, target, err
	}
	if op < 0 || op >= len(opNames) || status < 0 || status >= len(states) {
		return Row{}, 0, target, fmt.Errorf("row %d has op %d and status %d, which are not known here", row.Revision, op, status)
	}
	row.Op, row.State, row.CreatedAt = opNames[op], states[status], time.UnixMilli(created)
	if op != cancelCode {
		row.DueAt = time.UnixMilli(dueMs)
	}
	if finished.Valid {
		row.FinishedAt = time.UnixMilli(finished.Int64)
	}
	return row, status, target, nil
}
