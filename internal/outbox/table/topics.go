package table

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// Topic is the topic and due time of a row that waits beyond the horizon.
type Topic struct {
	Number       int64
	Queue, Topic string
	DueMs        int64
}

// Last returns the highest number of a row, 0 if there is none.
func (p PendingRows) Last(ctx context.Context) (number int64, err error) {
	err = p.db.query("SELECT COALESCE(MAX(id), 0) FROM {t}").each(ctx, p.db.db, func(rows *sql.Rows) error { return rows.Scan(&number) })
	if err != nil {
		return 0, fmt.Errorf("read the last number: %w", err)
	}
	return number, nil
}

// Topics reads up to most rows in the order of their numbers, after one number up to
// another, and returns those whose messages are pending and due beyond the horizon;
// read is the last number that it has read, or to if it has read all. It takes no
// lock.
func (p PendingRows) Topics(ctx context.Context, after, to int64, horizon time.Duration, most int) (list []Topic, read int64, err error) {
	n := 0
	err = p.db.Within(ctx, func(t *Tx) error {
		return p.topicsQuery(after, to, horizon, most).each(ctx, t.tx, func(rows *sql.Rows) error {
			var it Topic
			var waits bool
			err := rows.Scan(&it.Number, &it.Queue, &it.Topic, &it.DueMs, &waits)
			if n, read = n+1, it.Number; waits {
				list = append(list, it)
			}
			return err
		})
	})
	if err != nil {
		return nil, 0, fmt.Errorf("read topics: %w", err)
	}
	if n < most {
		read = to
	}
	return list, read, nil
}

// topicsQuery is the statement of Topics. It bounds the rows read, not those found, so that other
// rows cost no more than waiting ones.
func (p PendingRows) topicsQuery(after, to int64, horizon time.Duration, most int) *query {
	return p.db.query("").add("SELECT id, queue, topic, due_ms, op = 0 AND status = 0 AND due_ms > {now} + ? FROM {t} WHERE id > ? AND id <= ? ORDER BY id LIMIT ?",
		horizon.Milliseconds(), after, to, most)
}

// LockMessages locks those of the rows that are pending messages without a pending
// operation, and leaves rows that others have locked. It reads only their
// identities, topics and due times.
func (t *Tx) LockMessages(ctx context.Context, numbers []int64) (list []*Row, err error) {
	q := t.db.query("SELECT id, queue, message_key, message_id, topic, due_ms").from(byNumber).add(" WHERE id").ids(numbers).
		add(" AND op = 0 AND status = 0").withoutOperation().add(" ORDER BY id FOR UPDATE SKIP LOCKED")
	err = q.each(ctx, t.tx, func(rows *sql.Rows) error {
		r := new(Row)
		list = append(list, r)
		return rows.Scan(&r.Number, &r.Queue, &r.Key, &r.ID, &r.Content.Topic, &r.DueMs)
	})
	if err != nil {
		return nil, fmt.Errorf("lock rows: %w", err)
	}
	return list, nil
}
