package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"
)

const (
	// watchEvery is how often clocks are compared and the backlog is counted.
	watchEvery = 15 * time.Second
	// tidyEvery is how often finished rows are purged and foreign queues counted.
	tidyEvery = time.Minute
	// purgeBatch is how many rows one transaction deletes.
	purgeBatch = 1000
	// countLimit is up to how many rows are counted.
	countLimit = 100_000
	// skewLimit is how far the clocks may be apart.
	skewLimit = time.Second
	// purgeSlack is how much longer than the oldest pending operation rows are kept.
	purgeSlack = time.Hour
)

// upkeep watches and tidies until ctx ends; what fails is tried again next time.
func (r *Relay) upkeep(ctx context.Context) error {
	var tidied time.Time
	for {
		err := r.watch(ctx)
		if err == nil && time.Since(tidied) >= tidyEvery {
			tidied = time.Now()
			err = r.tidy(ctx)
		}
		if err != nil && ctx.Err() == nil {
			r.log.DebugContext(ctx, "outbox upkeep failed", "err", err)
		}
		if !sleep(ctx, watchEvery, nil) {
			return nil
		}
	}
}

// watch compares the clocks and counts what waits.
func (r *Relay) watch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, watchEvery)
	defer cancel()
	databaseMs, read, err := r.db.clock(ctx)
	if err != nil {
		return err
	}
	now, err := r.config.Clock(ctx)
	if err != nil {
		return err
	}
	// Both at the instant when the database was read.
	ahead := time.Duration(databaseMs-now.Add(-time.Since(read)).UnixMilli()) * time.Millisecond
	r.observer.Skew(ahead)
	if ahead.Abs() > skewLimit {
		r.log.WarnContext(ctx, "clocks of database and redis differ: a delay counts from the database's clock",
			"event", "outbox_clock_skew", "database_ahead_ms", ahead.Milliseconds())
	}
	rows, oldest, err := r.db.backlog(ctx, r.names, now.Add(r.config.Horizon).UnixMilli(), r.config.Horizon.Milliseconds())
	if err == nil {
		r.observer.Backlog(rows, oldest)
	}
	return err
}

// clock is the database's, and the instant at which it was read.
func (d *Database) clock(ctx context.Context) (ms int64, read time.Time, err error) {
	before := time.Now()
	err = d.query("SELECT {now}").each(ctx, d.db, func(rows *sql.Rows) error { return rows.Scan(&ms) })
	if err != nil {
		err = fmt.Errorf("read the database's clock: %w", err)
	}
	return ms, before.Add(time.Since(before) / 2), err
}

// backlog counts rows that could be in Redis, and says since when the oldest could.
func (d *Database) backlog(ctx context.Context, queues []string, untilMs, horizonMs int64) (count int, oldest time.Duration, err error) {
	var age int64
	q := d.query("SELECT count(*), COALESCE({now} - min(since_ms), 0) FROM (SELECT ").
		add("CASE WHEN op > 0 OR created_ms > load_ms - ? THEN created_ms ELSE load_ms - ? END AS since_ms", horizonMs, horizonMs).from(byLoad).
		add(" WHERE status = 0 AND load_ms <= ? AND ", untilMs).queues(queues, true).add(" LIMIT ?) b", countLimit)
	err = d.within(ctx, func(tx querier) error {
		return q.each(ctx, tx, func(rows *sql.Rows) error { return rows.Scan(&count, &age) })
	})
	if err != nil {
		return 0, 0, fmt.Errorf("count the backlog: %w", err)
	}
	return count, time.Duration(max(0, age)) * time.Millisecond, nil
}

// tidy purges finished rows and dead relays, and looks for rows that nobody here
// will ever take.
func (r *Relay) tidy(ctx context.Context) error {
	now, err := r.redisNow(ctx)
	if err != nil {
		return err
	}
	untilMs := now.Add(r.config.Horizon).UnixMilli()
	if err := r.reportUnknown(ctx, untilMs); err != nil {
		return err
	}
	if err := r.db.forgetDeaths(ctx, untilMs); err != nil {
		return err
	}
	for {
		n, err := r.db.purge(ctx, r.config.Keep)
		if err != nil || n < purgeBatch || ctx.Err() != nil {
			return err
		}
	}
}

func (r *Relay) redisNow(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	now, err := r.config.Clock(ctx)
	if err != nil {
		return now, fmt.Errorf("%w: %w", errRedis, err)
	}
	return now, nil
}

// reportUnknown says how many rows wait for queues that this bridge has not.
// Another bridge may have them; a misspelt one has nobody.
func (r *Relay) reportUnknown(ctx context.Context, untilMs int64) error {
	rows := 0
	var names []string
	q := r.db.query("SELECT queue, count(*) FROM (SELECT queue").from(byLoad).
		add(" WHERE status = 0 AND load_ms <= ? AND ", untilMs).queues(r.names, false).
		add(" LIMIT ?) b GROUP BY queue", countLimit)
	err := r.db.within(ctx, func(tx querier) error {
		return q.each(ctx, tx, func(list *sql.Rows) error {
			var name string
			var count int
			err := list.Scan(&name, &count)
			rows += count
			names = append(names, name)
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("count rows of unknown queues: %w", err)
	}
	r.observer.UnknownQueues(rows)
	if rows > 0 {
		slices.Sort(names)
		r.log.WarnContext(ctx, "outbox rows wait for queues that this bridge does not have",
			"event", "outbox_unknown_queues", "rows", rows, "queues", names[:min(len(names), 5)])
	}
	return nil
}

// purge deletes a batch of rows that finished long ago. While an operation is
// pending that is older than them, rows are kept: they tell what overtook it.
func (d *Database) purge(ctx context.Context, keep time.Duration) (n int64, err error) {
	err = d.within(ctx, func(tx querier) error {
		var old bool
		probe := d.query("SELECT EXISTS (SELECT 1").from(byLoad).
			add(" WHERE status = 0 AND op + 0 > 0 AND load_ms = 0 AND created_ms < {now} - ?)", (keep - purgeSlack).Milliseconds())
		if err := probe.each(ctx, tx, func(rows *sql.Rows) error { return rows.Scan(&old) }); err != nil || old {
			return err
		}
		q := d.query("").add("DELETE FROM {t} WHERE finished_ms < {now} - ? ORDER BY finished_ms LIMIT ?", keep.Milliseconds(), purgeBatch)
		if d.dialect.arrays {
			q = d.query("").add("DELETE FROM {t} WHERE id IN (SELECT id FROM {t} WHERE finished_ms < {now} - ?"+
				" ORDER BY finished_ms LIMIT ? FOR UPDATE SKIP LOCKED)", keep.Milliseconds(), purgeBatch)
		}
		n, err = q.exec(ctx, tx)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("purge finished rows: %w", err)
	}
	return n, nil
}
