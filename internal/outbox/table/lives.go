package table

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// seenEvery is the shortest interval between records of a bridge's presence.
const seenEvery = 10 * time.Second

// Lives knows to which life of a queue in Redis the queue's rows belong. A life lasts
// from the making of a queue until Redis loses it, see [store.Layout.Life].
type Lives struct{ db *Database }

// Lives returns the lives in the table.
func (d *Database) Lives() Lives { return Lives{d} }

// Life is a queue's life in the table.
type Life struct {
	Name string // empty: nothing was stored of the queue yet
	// Seen is when a bridge with that Redis was last present, by the database's clock, and Silent
	// how long ago.
	Seen   time.Time
	Silent time.Duration
}

// Of reads the life of a queue.
func (l Lives) Of(ctx context.Context, queue string) (life Life, err error) {
	return l.db.life(ctx, l.db.db, queue)
}

// Life is [Lives.Confirm] within the transaction, so that the first batch of a queue need
// not wait for the goroutine that checks lives.
func (t *Tx) Life(ctx context.Context, queue, ours string) (Life, error) {
	return t.db.confirm(ctx, t.tx, queue, ours)
}

func (d *Database) life(ctx context.Context, by querier, queue string) (life Life, err error) {
	err = d.query("").add("SELECT life, seen_ms, {now} - seen_ms FROM {t}_lives WHERE queue = ?", d.text(queue)).each(ctx, by, func(rows *sql.Rows) error {
		var seen, silent int64
		err := rows.Scan(&life.Name, &seen, &silent)
		life.Seen, life.Silent = time.UnixMilli(seen), time.Duration(silent)*time.Millisecond
		return err
	})
	if err != nil {
		err = fmt.Errorf("read the queue's life: %w", err)
	}
	return life, err
}

// Confirm is [Lives.Of], and records ours if there is none.
func (l Lives) Confirm(ctx context.Context, queue, ours string) (Life, error) {
	return l.db.confirm(ctx, l.db.db, queue, ours)
}

func (d *Database) confirm(ctx context.Context, by querier, queue, ours string) (life Life, err error) {
	life, err = d.life(ctx, by, queue)
	if err != nil || life.Name != "" {
		return life, err
	}
	insert, ignore := "INSERT IGNORE", ""
	if d.dialect.arrays {
		insert, ignore = "INSERT", " ON CONFLICT DO NOTHING"
	}
	q := d.query(insert).add(" INTO {t}_lives (queue, life, seen_ms) VALUES (?, ?, {now})"+ignore, d.text(queue), d.text(ours))
	if _, err := q.exec(ctx, by); err != nil {
		return life, fmt.Errorf("write the queue's life: %w", err)
	}
	return d.life(ctx, by, queue)
}

// Renew records that a bridge of that life is present, unless that was recorded lately.
func (l Lives) Renew(ctx context.Context, queue, life string) error {
	q := l.db.query("").add("UPDATE {t}_lives SET seen_ms = {now} WHERE queue = ? AND life = ? AND seen_ms < {now} - ?",
		l.db.text(queue), l.db.text(life), seenEvery.Milliseconds())
	return l.write(ctx, q)
}

// Replace moves the rows of a queue from one life to another, and reports whether they
// belonged to the former.
func (l Lives) Replace(ctx context.Context, queue, from, to string) (done bool, err error) {
	q := l.db.query("").add("UPDATE {t}_lives SET life = ?, seen_ms = {now} WHERE queue = ? AND life = ?", l.db.text(to), l.db.text(queue), l.db.text(from))
	n, err := q.exec(ctx, l.db.db)
	if err != nil {
		return false, fmt.Errorf("write the queue's life: %w", err)
	}
	return n > 0, nil
}

func (l Lives) write(ctx context.Context, q *query) error {
	if _, err := q.exec(ctx, l.db.db); err != nil {
		return fmt.Errorf("write the queue's life: %w", err)
	}
	return nil
}
