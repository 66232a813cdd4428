package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/test/trial"
)

const (
	horizonTime = time.Hour
	// foreignRows are due, of a queue that no bridge serves.
	foreignRows = 300_000
)

// rows are rows of an outbox whose lateness nobody measures.
type rows struct {
	queue, ids, topic string // the queue is the world's where it is empty
	count             int
	first             time.Time     // the earliest due time
	over              time.Duration // from the first to the last
}

// insert has the server write them itself, in no order of time, as producers do.
func insert(ctx context.Context, w *trial.World, r rows) error {
	const chunk = 100_000
	seq, divide, from := "seq", "DIV", "seq_%d_to_%d"
	body := "REPEAT('x', 256)"
	if w.Database.Kind == "postgres" {
		seq, divide, from = "seq::bigint", "/", "generate_series(%d, %d) AS s(seq)"
		body = "convert_to(repeat('x', 256), 'UTF8')"
	}
	statement := fmt.Sprintf("INSERT INTO delay_outbox (queue, message_id, topic, body, due_ms) "+
		"SELECT '%s', CONCAT('%s-', seq), '%s', %s, %d + ((%s * 7919) %% %d) * %d %s 1000 FROM ",
		cmp.Or(r.queue, w.Queue()), r.ids, r.topic, body, r.first.UnixMilli(), seq, r.count, r.over.Microseconds()/int64(r.count), divide)
	for first := 1; first <= r.count; first += chunk {
		if _, err := w.Database.DB.ExecContext(ctx, statement+fmt.Sprintf(from, first, min(r.count, first+chunk-1))); err != nil {
			return fmt.Errorf("insert rows: %w", err)
		}
	}
	return nil
}

// eachDatabase measures one after the other.
func (r run) eachDatabase(measure func(name string) error) error {
	var problems []error
	for name := range strings.SplitSeq(r.databases, ",") {
		if err := measure(name); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(problems...)
}

// boxed is a world with an outbox, and its producers.
type boxed struct {
	*trial.World
	run    run
	name   string
	box    *outbox.Outbox
	hangUp func()
}

func (r run) boxed(ctx context.Context, name, database, horizon string) (*boxed, error) {
	w, err := r.world(ctx, trial.Options{Database: database, Outbox: "horizon: " + horizon})
	if err != nil {
		return nil, err
	}
	b := &boxed{World: w, run: r, name: name}
	if b.box, b.hangUp, err = w.Outbox(ctx); err != nil {
		w.Close()
		return nil, err
	}
	return b, nil
}

func (b *boxed) close() {
	b.hangUp()
	b.Close()
}

func (b *boxed) say(format string, args ...any) {
	fmt.Printf("%-8s %-5s  %s\n", b.Database.Kind, b.name, fmt.Sprintf(format, args...))
}

// schedule schedules in a transaction.
func (b *boxed) schedule(ctx context.Context, requests []delay.Request) ([]delay.Result, error) {
	tx, err := b.Database.DB.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }() // Nothing, if it was committed.
	results, err := b.box.ScheduleBatch(ctx, tx, b.Queue(), requests)
	return results, errors.Join(err, tx.Commit())
}

// horizonFigure compares the lateness of a queue whose table is full with that of one
// whose table has nothing else, both at the same time, so that what else the machine
// does counts for both. The full one has -count rows (500,000) that are due within
// a year, foreign ones that are due, and an open snapshot, as a dump holds one: while it is
// there, no database forgets an entry of an index.
func horizonFigure(ctx context.Context, r run) error {
	return r.eachDatabase(func(name string) error { return r.horizon(ctx, name) })
}

func (r run) horizon(ctx context.Context, database string) error {
	full, err := r.boxed(ctx, "full", database, horizonTime.String())
	if err != nil {
		return err
	}
	defer full.close()
	alone, err := r.boxed(ctx, "alone", database, horizonTime.String())
	if err != nil {
		return err
	}
	defer alone.close()
	if err := full.fill(ctx); err != nil {
		return err
	}
	release, err := full.hold(ctx)
	if err != nil {
		return err
	}
	defer release()
	// What the snapshot costs grows with what has been relayed since it was taken.
	for _, part := range []string{"grows", "grown"} {
		group, inside := errgroup.WithContext(ctx)
		for _, b := range []*boxed{full, alone} {
			group.Go(func() error { return b.load(inside, part, r.window/2) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// fill writes the year, and says what Redis needs for what is due within the horizon.
func (b *boxed) fill(ctx context.Context) error {
	topic := b.Topic + "-far" // Its messages are nobody's.
	before, err := usedMemory(ctx, b.World)
	if err := errors.Join(err, b.Broker.MakeTopic(ctx, topic)); err != nil {
		return err
	}
	count, begin := cmp.Or(b.run.count, 500_000), time.Now()
	for _, list := range []rows{
		{ids: "far", topic: topic, count: count, first: begin, over: 365 * 24 * time.Hour},
		{queue: "nobodys", ids: "foreign", topic: topic, count: foreignRows, first: begin.Add(-time.Hour), over: time.Hour},
	} {
		if err := insert(ctx, b.World, list); err != nil {
			return err
		}
	}
	written := time.Now()
	near := fmt.Sprintf("SELECT count(*) FROM delay_outbox WHERE queue = '%s' AND status = 0 AND load_ms <= %d", b.Queue(), begin.Add(horizonTime-time.Second).UnixMilli())
	for left := 1; left > 0; {
		if err := errors.Join(b.Database.DB.QueryRowContext(ctx, near).Scan(&left), trial.Sleep(ctx, 20*time.Millisecond)); err != nil {
			return err
		}
	}
	after, err := usedMemory(ctx, b.World)
	if err != nil {
		return err
	}
	size, err := b.tableSize(ctx)
	if err != nil {
		return err
	}
	totals, err := b.Totals(ctx)
	b.say("%d rows of a year and %d foreign ones written in %s, %d bytes a row with its indexes; Redis has %.1f MiB before, %.1f after, where %d messages wait, loaded %s later",
		count, foreignRows, written.Sub(begin).Round(time.Second), size/int64(count+foreignRows), float64(before)/(1<<20), float64(after)/(1<<20), totals.Waiting, ms(time.Since(written)))
	return err
}

// tableSize is what the rows and their indexes take, in bytes.
func (b *boxed) tableSize(ctx context.Context) (size int64, err error) {
	query := "SELECT data_length + index_length FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'delay_outbox'"
	if b.Database.Kind == "postgres" {
		query = "SELECT pg_total_relation_size('delay_outbox')"
	}
	return size, b.Database.DB.QueryRowContext(ctx, query).Scan(&size)
}

// hold takes a snapshot, as a dump does, and holds it until it is released.
func (b *boxed) hold(ctx context.Context) (release func(), err error) {
	tx, err := b.Database.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return nil, err
	}
	var n int64
	if err := tx.QueryRowContext(ctx, "SELECT id FROM delay_outbox LIMIT 1").Scan(&n); err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	return func() { _ = tx.Rollback() }, nil // It was for reading only.
}

// load schedules messages in transactions for a while, due in two to five seconds, and says
// how late they came.
func (b *boxed) load(ctx context.Context, name string, window time.Duration) error {
	b.Topic, b.Ledger = b.Topic+"-"+name, trial.NewLedger()
	if err := b.Broker.MakeTopic(ctx, b.Topic); err != nil {
		return err
	}
	stop := b.Consume(ctx)
	loading, end := context.WithTimeout(ctx, window)
	defer end()
	err := trial.Steady{
		Schedule: b.schedule, Topic: b.Topic, Rate: b.run.rate, Lead: 2 * time.Second, Spread: 3 * time.Second, BodySize: 256, IDs: name, Seed: b.run.seed,
	}.Run(loading, b.Ledger)
	b.Ledger.Await(2*time.Minute, time.Second)
	report := b.Ledger.Report()
	b.say("%-12s %s", name, report)
	if report.Wrong() > 0 {
		err = errors.Join(err, fmt.Errorf("%s: broken promises: %s", b.name, report))
	}
	return errors.Join(err, stop())
}

// wipeFigure empties Redis while many messages of an outbox wait in it, and measures how long
// it takes until all are back, and how late others come meanwhile.
func wipeFigure(ctx context.Context, r run) error {
	return r.eachDatabase(func(name string) error { return r.wipe(ctx, name) })
}

func (r run) wipe(ctx context.Context, database string) error {
	b, err := r.boxed(ctx, "wipe", database, "72h")
	if err != nil {
		return err
	}
	defer b.close()
	count, begin := cmp.Or(r.count, 1_000_000), time.Now()
	if err := insert(ctx, b.World, rows{ids: "far", topic: b.Topic, count: count, first: begin.Add(24 * time.Hour), over: time.Hour}); err != nil {
		return err
	}
	written := time.Since(begin)
	if err := b.waiting(ctx, int64(count)); err != nil {
		return err
	}
	b.say("%d rows written in %s, all in Redis after %s", count, ms(written), ms(time.Since(begin)))
	loading := func(ctx context.Context) error { return b.load(context.WithoutCancel(ctx), "beside", r.window) }
	return trial.While(ctx, loading, func(ctx context.Context) error {
		if err := errors.Join(trial.Sleep(ctx, r.window/4), b.RDB.FlushAll(ctx).Err()); err != nil {
			return err
		}
		begin := time.Now()
		err := b.waiting(ctx, int64(count))
		b.say("all back %s after FLUSHALL, %.0f a second", ms(time.Since(begin)), rate(count, time.Since(begin)))
		return err
	})
}

// waiting waits until at least so many messages do in Redis.
func (b *boxed) waiting(ctx context.Context, count int64) error {
	for {
		totals, err := b.Totals(ctx)
		if err == nil && totals.Waiting >= count {
			return nil
		}
		if failure := trial.Sleep(ctx, 50*time.Millisecond); failure != nil {
			return errors.Join(err, failure)
		}
	}
}
