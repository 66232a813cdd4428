package relay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

const (
	// watchEvery is the interval between comparisons of the clocks and counts of the backlog.
	watchEvery = 15 * time.Second
	// tidyEvery is the interval between purges of finished rows and counts of foreign queues.
	tidyEvery = time.Minute
	// skewLimit is how far the clocks may be apart.
	skewLimit = time.Second
)

// upkeep watches and tidies until ctx ends; a failed step is repeated next time.
func (r *Relay) upkeep(ctx context.Context) error {
	var tidyAt time.Time
	for {
		began := time.Now()
		err := r.watch(ctx)
		took := time.Since(began)
		if now := time.Now(); !now.Before(tidyAt) {
			looked, errTidy := r.tidy(ctx)
			tidyAt, err = now.Add(max(tidyEvery, wait.Rest(looked))), errors.Join(err, errTidy)
		}
		if err != nil && ctx.Err() == nil {
			r.log.DebugContext(ctx, "outbox upkeep failed", "err", err)
		}
		if !wait.Sleep(ctx, max(watchEvery, wait.Rest(took))) {
			return nil
		}
	}
}

// watch compares the clocks and counts pending rows. While Redis is away it uses the last reading
// of its clock.
func (r *Relay) watch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, watchEvery)
	defer cancel()
	databaseMs, read, err := r.db.Clock(ctx)
	if err != nil {
		return err
	}
	away := r.compareClocks(ctx, databaseMs, read)
	now := time.UnixMilli(databaseMs)
	if ahead := r.skew.Load(); ahead != nil {
		now = now.Add(-*ahead)
	}
	rows, oldest, err := r.db.Pending().Backlog(ctx, r.served.Load().names, now.Add(r.config.Horizon).UnixMilli(), r.config.Horizon.Milliseconds())
	if err == nil {
		r.observer.Backlog(rows, oldest, r.blocked.count())
	}
	return errors.Join(away, err)
}

// compareClocks reports how far the database's clock is ahead of Redis'; read is when the former was
// read by our clock.
func (r *Relay) compareClocks(ctx context.Context, databaseMs int64, read time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
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
	return nil
}

// tidy counts rows that no relay here will ever take, and purges finished ones. looked is how long
// that took without deleting more than one batch: while a snapshot is open, it walks over all
// that has changed since then.
func (r *Relay) tidy(ctx context.Context) (looked time.Duration, err error) {
	began := time.Now()
	errUnknown := r.reportUnknown(ctx)
	fromMs, more, err := r.db.Ended().Purge(ctx, r.config.Keep, 0)
	looked = time.Since(began)
	// A batch begins where the last one ended: the database may still hold the entries that it
	// deleted.
	for more && err == nil && ctx.Err() == nil {
		fromMs, more, err = r.db.Ended().Purge(ctx, r.config.Keep, fromMs)
	}
	return looked, errors.Join(errUnknown, err, r.purgeOperations(ctx))
}

const (
	// purgeSpan is the span of end times that one statement searches for operations, longSpan
	// the longest: it reads the messages of all that time.
	purgeSpan, longSpan = time.Minute, time.Hour
	// quickPurge is how long a statement may take for the next one to search twice the span.
	quickPurge = 20 * time.Millisecond
	// purgeAgain is how far before the last purge the next one searches again, for operations
	// committed since: no transaction of ours takes that long.
	purgeAgain = time.Minute
)

// purgeOperations purges cancels and reschedules before messages. It continues where the last one
// ended, because ended messages stand in between.
func (r *Relay) purgeOperations(ctx context.Context) error {
	keep := r.config.KeepOperations
	if keep == 0 || keep >= r.config.Keep {
		return nil
	}
	nowMs, _, err := r.db.Clock(ctx)
	if err != nil {
		return err
	}
	untilMs := nowMs - keep.Milliseconds()
	from := max(r.purgedMs, nowMs-r.config.Keep.Milliseconds())
	for span := purgeSpan; from < untilMs && err == nil; {
		began, before := time.Now(), min(untilMs, from+span.Milliseconds())
		if err = r.purgeOperationsOf(ctx, from, before); err == nil {
			from, span = before, nextSpan(span, time.Since(began))
		}
	}
	r.purgedMs = min(from, untilMs-purgeAgain.Milliseconds())
	return err
}

// purgeOperationsOf purges those that have ended within a span.
func (r *Relay) purgeOperationsOf(ctx context.Context, at, before int64) (err error) {
	for more := true; more && err == nil; {
		if err = ctx.Err(); err == nil {
			at, more, err = r.db.Ended().PurgeOperations(ctx, at, before)
		}
	}
	return err
}

// nextSpan is the span of the next statement: twice as long after a quick one, so that the
// first purge, which searches all that is kept, ends soon.
func nextSpan(span, took time.Duration) time.Duration {
	if took > quickPurge {
		return purgeSpan
	}
	return min(2*span, longSpan)
}

// reportUnknown reports how many rows wait for queues that this bridge does not have. Another
// bridge may have them; no bridge has a misspelt one.
func (r *Relay) reportUnknown(ctx context.Context) error {
	o, err := r.outlook(ctx)
	if err != nil {
		return err
	}
	foreign, err := r.db.Pending().Foreign(ctx, r.served.Load().names, o.untilMs())
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
