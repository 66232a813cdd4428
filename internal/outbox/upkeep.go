package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/delaybridge/delaybridge/internal/wait"
)

const (
	// watchEvery is how often clocks are compared and the backlog is counted.
	watchEvery = 15 * time.Second
	// tidyEvery is how often finished rows are purged and foreign queues counted.
	tidyEvery = time.Minute
	// purgeBatch is how many rows one transaction deletes.
	purgeBatch = 1000
	// countLimit is up to how many rows of a queue are counted.
	countLimit = 100_000
	// foreignLimit is that of a queue that this bridge does not have, mostForeign how
	// many such queues are looked at.
	foreignLimit, mostForeign = 10_000, 100
	// skewLimit is how far the clocks may be apart.
	skewLimit = time.Second
)

// upkeep watches and tidies until ctx ends; what fails is tried again next time.
func (r *Relay) upkeep(ctx context.Context) error {
	var tidied time.Time
	for {
		err := r.watch(ctx)
		if time.Since(tidied) >= tidyEvery {
			tidied = time.Now()
			err = errors.Join(err, r.tidy(ctx))
		}
		if err != nil && ctx.Err() == nil {
			r.log.DebugContext(ctx, "outbox upkeep failed", "err", err)
		}
		if !wait.Sleep(ctx, watchEvery) {
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
	r.skew.Store(&ahead)
	if ahead.Abs() > skewLimit {
		r.log.WarnContext(ctx, "clocks of database and redis differ: a delay counts from the database's clock",
			"event", "outbox_clock_skew", "database_ahead_ms", ahead.Milliseconds())
	}
	rows, oldest, err := r.db.backlog(ctx, r.names, now.Add(r.config.Horizon).UnixMilli(), r.config.Horizon.Milliseconds())
	if err == nil {
		r.observer.Backlog(rows, oldest, r.blocked.count())
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
	err = d.within(ctx, func(tx querier) error {
		for _, queue := range queues {
			q := d.query("SELECT count(*), COALESCE({now} - min(since_ms), 0) FROM (SELECT ").
				add("CASE WHEN op > 0 OR created_ms > load_ms - ? THEN created_ms ELSE load_ms - ? END AS since_ms", horizonMs, horizonMs).from(byDue).
				add(" WHERE queue = ? AND status = 0 AND load_ms <= ? LIMIT ?) b", d.text(queue), untilMs, countLimit)
			err := q.each(ctx, tx, func(rows *sql.Rows) error {
				var n int
				var age int64
				err := rows.Scan(&n, &age)
				count, oldest = count+n, max(oldest, time.Duration(age)*time.Millisecond)
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, 0, fmt.Errorf("count the backlog: %w", err)
	}
	return count, oldest, nil
}

// tidy purges finished rows, and looks for rows that nobody here will ever take.
func (r *Relay) tidy(ctx context.Context) error {
	look, err := r.outlook(ctx)
	if err != nil {
		return err
	}
	for {
		n, err := r.db.purge(ctx, r.config.Keep)
		if err != nil {
			return err
		}
		if n < purgeBatch || ctx.Err() != nil {
			break
		}
	}
	return r.reportUnknown(ctx, look.untilMs())
}

// reportUnknown says how many rows wait for queues that this bridge has not.
// Another bridge may have them; a misspelt one has nobody.
func (r *Relay) reportUnknown(ctx context.Context, untilMs int64) error {
	foreign, err := r.db.foreign(ctx, r.names, untilMs)
	if err != nil {
		return fmt.Errorf("count rows of unknown queues: %w", err)
	}
	rows := 0
	for _, count := range foreign {
		rows += count
	}
	r.observer.UnknownQueues(rows)
	if names := slices.Sorted(maps.Keys(foreign)); rows > 0 {
		r.log.WarnContext(ctx, "outbox rows wait for queues that this bridge does not have",
			"event", "outbox_unknown_queues", "rows", rows, "queues", names[:min(len(names), 5)])
	}
	return nil
}

// foreign counts the rows that could be in Redis, of queues that are not listed:
// some of them, where there are many. It goes from one queue to the next by the
// index, so that rows of the others cost nothing.
func (d *Database) foreign(ctx context.Context, queues []string, untilMs int64) (counts map[string]int, err error) {
	counts = map[string]int{}
	err = d.within(ctx, func(tx querier) error {
		for last := ""; len(counts) < mostForeign; {
			next, found := "", false
			q := d.query("SELECT queue").from(byDue).add(" WHERE queue > ?", d.text(last))
			if d.dialect.arrays { // Its index has nothing but pending rows.
				q.add(" AND status = 0")
			}
			err := q.add(" ORDER BY queue LIMIT 1").each(ctx, tx, func(rows *sql.Rows) error { found = true; return rows.Scan(&next) })
			if err != nil || !found {
				return err
			}
			last = next
			if slices.Contains(queues, next) {
				continue
			}
			count := d.query("SELECT count(*) FROM (SELECT 1").from(byDue).
				add(" WHERE queue = ? AND status = 0 AND load_ms <= ? LIMIT ?) b", d.text(next), untilMs, foreignLimit)
			var n int
			if err := count.each(ctx, tx, func(rows *sql.Rows) error { return rows.Scan(&n) }); err != nil {
				return err
			}
			if n > 0 {
				counts[next] = n
			}
		}
		return nil
	})
	return counts, err
}

// purge deletes a batch of rows that finished long ago. Those of a message of which
// an operation is pending are kept: they tell what overtook it.
func (d *Database) purge(ctx context.Context, keep time.Duration) (n int64, err error) {
	err = d.within(ctx, func(tx querier) error {
		q := d.query("").add("SELECT id FROM {t} WHERE finished_ms < {now} - ? AND NOT EXISTS (SELECT 1 FROM {t} o", keep.Milliseconds()).hinted(byIdentity).
			add(" WHERE o.queue = {t}.queue AND o.message_key = {t}.message_key AND o.message_id = {t}.message_id AND "+hasOperation+d.dialect.fence+")").
			add(" ORDER BY finished_ms LIMIT ? FOR UPDATE SKIP LOCKED", purgeBatch)
		var numbers []int64
		err := q.each(ctx, tx, func(rows *sql.Rows) error {
			var number int64
			err := rows.Scan(&number)
			numbers = append(numbers, number)
			return err
		})
		if err != nil || len(numbers) == 0 {
			return err
		}
		n, err = d.query("DELETE FROM {t} WHERE id").ids(numbers).exec(ctx, tx)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("purge finished rows: %w", err)
	}
	return n, nil
}
