package delaytest

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/seal"
)

// DB reads rows: a [*sql.Tx], a [*sql.DB], or a transaction of pgx wrapped by pgxtx.Wrap,
// as package outbox takes them.
type DB interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// defaultTable is schema.DefaultTable of package outbox, whose module is not this one.
const defaultTable = "delay_outbox"

// LoadOutbox does what a bridge does with the rows that package outbox has written for
// this queue: it applies the pending schedules, cancels and reschedules in their order.
// Through a transaction it sees what that has written, through a [*sql.DB] what was
// committed; wrap a transaction of pgx by pgxtx.Wrap. It only reads the rows, and applies
// each once, so call it after each step of the test. An empty table means "delay_outbox".
//
//	tx, err := db.BeginTx(ctx, nil)
//	shop.PlaceOrder(ctx, tx, 42) // calls box.Schedule(ctx, tx, "orders", …)
//	queue.LoadOutbox(tx, "")
//	queue.RequireScheduled("order.timeout", delay.After(30*time.Minute))
//
// A row that a bridge would refuse fails the test at once. The database's clock does
// not follow the queue's, so a row moves the queue's clock forward to the time at
// which it was written, and its delay counts from there.
func (q *Queue) LoadOutbox(tx DB, table string) {
	q.t.Helper()
	if table == "" {
		table = defaultTable
	}
	for {
		q.bridge.mu.Lock()
		after := q.bridge.loaded[table]
		q.bridge.mu.Unlock()
		r, err := q.nextRow(tx, table, after)
		if errors.Is(err, sql.ErrNoRows) {
			return
		}
		q.must("read "+table, err)
		if err := q.load(r); err != nil {
			q.t.Fatalf("delaytest: row %d of %s, message %s: a bridge would refuse it: %v", r.id, table, name(r.ref.ID, r.ref.Key), err)
		}
		q.bridge.mu.Lock()
		q.bridge.loaded[table] = r.id
		q.bridge.mu.Unlock()
	}
}

// The operations as the table numbers them.
const (
	opSchedule = iota
	opCancel
	opReschedule
	opReplace
)

type outboxRow struct {
	id, op, dueMs, createdMs int64
	ref                      delay.Ref
	topic                    string
	headers, body            []byte
}

// nextRow reads the first pending row after the given one; [sql.ErrNoRows] if there is
// none. The statement needs no dialect, because the name of a queue has no quotes.
func (q *Queue) nextRow(tx DB, table string, after int64) (r outboxRow, err error) {
	const columns = "id, op, CASE WHEN op = 2 AND revision > 0 THEN revision ELSE due_ms END, created_ms, message_id, message_key, topic, headers, body"
	query := fmt.Sprintf("SELECT %s FROM %s WHERE queue = '%s' AND status = 0 AND id > %d ORDER BY id LIMIT 1", columns, table, q.store.Name(), after)
	dest := []any{&r.id, &r.op, &r.dueMs, &r.createdMs, &r.ref.ID, &r.ref.Key, &r.topic, &r.headers, &r.body}
	switch tx := tx.(type) {
	case interface { // of pgxtx
		ScanRow(ctx context.Context, query string, args []any, dest ...any) error
	}:
		err = tx.ScanRow(q.ctx(), query, nil, dest...)
	case interface {
		QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	}:
		err = tx.QueryRowContext(q.ctx(), query).Scan(dest...)
	default:
		err = fmt.Errorf("%T has no method QueryRowContext", tx)
	}
	return r, err
}

// writing exceeds the time between a database's two clock reads, for a row's due time and for
// its creation, which are rounded separately. So an Advance by the delay reaches the due time.
const writing = 10 * time.Millisecond

// load applies one row. An operation that came too late is no error.
func (q *Queue) load(r outboxRow) error {
	if written := time.UnixMilli(r.createdMs).Add(writing); written.After(q.Now()) {
		q.clock.set(written)
	}
	when := delay.At(time.UnixMilli(r.dueMs))
	var err error
	switch r.op {
	case opCancel:
		err = q.Cancel(q.ctx(), r.ref)
	case opReschedule:
		err = q.Reschedule(q.ctx(), r.ref, when)
	case opSchedule, opReplace:
		request := delay.Request{When: when}
		if r.op == opReplace {
			request.Conflict = delay.Replace
		}
		if request.Message, err = q.message(r); err == nil {
			var results []delay.Result
			if results, err = q.ScheduleBatch(q.ctx(), []delay.Request{request}); err == nil {
				err = results[0].Err
			}
		}
	default:
		err = fmt.Errorf("operation %d is not known", r.op)
	}
	if errors.Is(err, delay.ErrNotFound) || errors.Is(err, delay.ErrTooLate) {
		return nil
	}
	return err
}

func (q *Queue) message(r outboxRow) (delay.Message, error) {
	m := message.Message{Queue: q.store.Name(), ID: r.ref.ID, Key: r.ref.Key, Topic: r.topic, Body: r.body}
	if len(r.headers) > 0 {
		if err := json.Unmarshal(r.headers, &m.Headers); err != nil {
			return delay.Message{}, fmt.Errorf("headers: %w", err)
		}
	}
	if err := seal.Open(q.bridge.keys, &m); err != nil {
		return delay.Message{}, err
	}
	headers, tags := message.CutTags(m.Headers)
	headers, late, err := message.CutLate(headers)
	return delay.Message{
		ID: m.ID, Key: m.Key, Topic: m.Topic, Headers: headers, Body: m.Body, Tags: tags,
		Late: delay.Late{After: late.After, Then: delay.LateAction(late.Then)},
	}, err
}
