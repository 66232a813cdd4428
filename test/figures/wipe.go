package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// wipeFigure empties Redis while many messages of an outbox wait in it and
// others are published and cancelled, and measures how long it takes until all
// are back: beside the rate at which the database alone can be read, and Redis
// alone be written.
func wipeFigure(ctx context.Context, r run) error {
	count := cmp.Or(r.count, 1_000_000)
	w, err := newWipeWorld(ctx, r.broker, r.shards)
	if err != nil {
		return err
	}
	defer w.close()
	if err := w.fill(ctx, count); err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	read, err := w.readAlone(ctx, count)
	if err != nil {
		return fmt.Errorf("read alone: %w", err)
	}
	write, err := w.writeAlone(ctx, count)
	if err != nil {
		return fmt.Errorf("write alone: %w", err)
	}
	b, err := w.startBridge(ctx)
	if err != nil {
		return err
	}
	defer b.stop(ctx)
	first, err := w.awaitPass(ctx, time.Now(), b, 1)
	if err != nil {
		return err
	}
	w.watch.show(w.say, "first start")
	w.watch.forget()
	p := startWipeLoad(ctx, w)
	defer p.stop()
	<-time.After(5 * time.Second)
	flying := p.sink.copies()
	begun := time.Now()
	w.events.add("wiped", begun)
	if err := w.rdb.FlushAll(ctx).Err(); err != nil {
		return err
	}
	if err := w.cancelSome(ctx, count); err != nil {
		return fmt.Errorf("cancel: %w", err)
	}
	again, err := w.awaitPass(ctx, begun, b, 2)
	if err != nil {
		return err
	}
	w.watch.show(w.say, "all back")
	there, err := w.waiting(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("%s, %d messages waiting, %d shards\n", r.broker, count, r.shards)
	fmt.Printf("  database read alone      %8.1f s  %8.0f /s\n", read.Seconds(), rate(count, read))
	fmt.Printf("  Redis written alone      %8.1f s  %8.0f /s\n", write.Seconds(), rate(count, write))
	fmt.Printf("  first start, Redis empty %8.1f s  %8.0f /s\n", first.Seconds(), rate(count, first))
	fmt.Printf("  all back after FLUSHALL  %8.1f s  %8.0f /s\n", again.Seconds(), rate(count, again))
	fmt.Printf("  waiting then             %8d\n", there)
	p.stop()
	fmt.Printf("  due within %s after the FLUSHALL: lost with Redis: %s\n", lateSpan, p.late())
	return w.judge(ctx, p, count, flying)
}

func (w *wipeWorld) say(format string, args ...any) {
	fmt.Printf("  %s\n", fmt.Sprintf(format, args...))
}

// wipeCancels is how many of the waiting messages are cancelled right after Redis
// was emptied.
const wipeCancels = 1000

func (w *wipeWorld) cancelSome(ctx context.Context, count int) error {
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // Nothing, where it was committed.
	for i := range wipeCancels {
		if err := w.box.Cancel(ctx, tx, wipeQueue, delay.Ref{ID: wipeID(i * (count / wipeCancels))}); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// awaitPass waits until all rows were gone through for the n-th time.
func (w *wipeWorld) awaitPass(ctx context.Context, begun time.Time, b *wipeBridge, n int) (time.Duration, error) {
	if err := w.events.await(ctx, "outbox_audited", n); err != nil {
		return 0, err
	}
	return w.events.at("outbox_audited", n).Sub(begun), b.failed()
}

// readAlone reads what an audit reads, in one statement.
func (w *wipeWorld) readAlone(ctx context.Context, count int) (time.Duration, error) {
	begun := time.Now()
	rows, err := w.db.QueryContext(ctx, "SELECT id, queue, message_key, message_id, op, status, tried, token, target, revision, due_ms,"+
		" created_ms, topic, headers, body FROM delay_outbox WHERE op = 0 AND status = 1")
	if err != nil {
		return 0, err
	}
	defer func() { _ = rows.Close() }()
	n := 0
	cells := make([]any, 15)
	for i := range cells {
		cells[i] = new(sql.RawBytes)
	}
	for rows.Next() {
		if err := rows.Scan(cells...); err != nil {
			return 0, err
		}
		n++
	}
	if n != count {
		return 0, fmt.Errorf("read %d rows of %d: %w", n, count, rows.Err())
	}
	return time.Since(begun), rows.Err()
}

// writeAlone puts as many messages into an empty queue, as an audit does.
func (w *wipeWorld) writeAlone(ctx context.Context, count int) (time.Duration, error) {
	q := store.New(w.rdb, "alone", wipeQueue)
	if _, err := q.Layouts().Ensure(ctx, w.layout()); err != nil {
		return 0, err
	}
	begun := time.Now()
	err := inChunks(count, func(start, end int) error {
		rows := make([]store.Row, 0, end-start)
		for i := start; i < end; i++ {
			m := &message.Message{ID: wipeID(i), Topic: "topic", Body: wipeBody}
			rows = append(rows, store.Row{Token: wipeToken(i), Message: m, DueAt: w.due})
		}
		var err error
		for _, answer := range q.Rows().Put(ctx, rows) {
			if answer.Code != store.Created && answer.Code != store.Mine { // A slow call is repeated.
				err = errors.Join(err, answer.Err, fmt.Errorf("put: code %d", answer.Code))
			}
		}
		return err
	})
	took := time.Since(begun)
	return took, errors.Join(err, w.rdb.FlushAll(ctx).Err())
}

// waiting counts the messages in Redis that shall wait.
func (w *wipeWorld) waiting(ctx context.Context) (n int, err error) {
	for shard := range w.shards {
		key := fmt.Sprintf("delay:{%s:%d}:due", wipeQueue, shard)
		due := fmt.Sprint(w.due.UnixMilli())
		c, err := w.rdb.ZCount(ctx, key, due, due).Result()
		if err != nil {
			return n, err
		}
		n += int(c)
	}
	return n, nil
}

// judge compares what was published with what the rows say.
func (w *wipeWorld) judge(ctx context.Context, p *wipeLoad, count int, before map[string]int) error {
	there, err := w.waiting(ctx)
	if err != nil {
		return err
	}
	states, err := w.states(ctx)
	if err != nil {
		return err
	}
	var problems []error
	complain := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if there != count-wipeCancels {
		complain("%d of %d messages wait, with %d cancelled", there, count, wipeCancels)
	}
	inTime := 0
	q := "SELECT count(*) FROM delay_outbox WHERE op = 1 AND status = 3 AND message_id LIKE 'w-%'"
	if err := w.db.QueryRowContext(ctx, q).Scan(&inTime); err != nil {
		return err
	}
	if inTime != wipeCancels {
		complain("%d of %d cancels right after the wipe were in time", inTime, wipeCancels)
	}
	copies := p.sink.copies()
	published, twice, cancelled, tooLate, unsure := 0, 0, 0, 0, 0
	for id, s := range states {
		n := copies[id]
		published += n
		switch {
		case n > 2:
			complain("%s was published %d times", id, n)
		case n == 2:
			twice++
			if !p.nearWipe(id) {
				complain("%s was published twice, and not in flight when Redis was wiped", id)
			}
		}
		switch {
		case s.cancel == "cancelled":
			cancelled++
			if n > 0 {
				complain("%s was cancelled in time, and published %d times", id, n)
			}
		case s.cancel == "unknown" && s.head == "cancelled": // A copy may be out.
			unsure++
		case s.head != "published" || n == 0:
			complain("%s is %s, its cancel %q, and was published %d times", id, s.head, s.cancel, n)
		case s.cancel == "too_late":
			tooLate++
		case s.cancel != "":
			unsure++
		}
	}
	for id := range copies {
		if _, known := states[id]; !known {
			complain("%s was published, and should wait", id)
		}
	}
	fmt.Printf("  cancelled right after the FLUSHALL: %d of %d in time\n", inTime, wipeCancels)
	fmt.Printf("  beside: %d messages, %d copies (%d before the wipe), %d twice; cancels: %d in time, %d too late, %d unsure\n",
		len(states), published, len(before), twice, cancelled, tooLate, unsure)
	if len(problems) > 10 {
		problems = append(problems[:10], fmt.Errorf("and %d more", len(problems)-10))
	}
	return errors.Join(problems...)
}

// eventLog is a handler of logs that remembers when events happened.
type eventLog struct {
	slog.Handler
	*events
}

// Handle remembers the event.
func (l eventLog) Handle(ctx context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "event" {
			l.add(a.Value.String(), r.Time)
		}
		return true
	})
	if !l.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return l.Handler.Handle(ctx, r)
}

// Enabled lets all events come.
func (l eventLog) Enabled(context.Context, slog.Level) bool { return true }

// WithAttrs keeps the events.
func (l eventLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return eventLog{l.Handler.WithAttrs(attrs), l.events}
}
