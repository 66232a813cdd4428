package settler

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// draining is one pass of a settler.
type draining struct {
	settler *Settler
	refs    []ledgerRef
	left    map[ledgerRef]bool
	batch   []told
	busy    bool
	away    error // why a database could not be asked
}

// told is an entry of a ledger.
type told struct {
	store.SettledRow
	from ledgerRef
}

// fateOf is what the row of a message is told.
func fateOf(queue string, row store.SettledRow) table.Fate {
	fate := table.Fate{Version: table.Version{Identity: table.Identity{Queue: queue, Key: row.Key, ID: row.ID}, Token: row.Token}}
	switch row.What {
	case store.FatePublished:
		fate.State = table.StatePublished
	case store.FateCancelled:
		fate.State, fate.Maybe = table.StateCancelled, row.Maybe
	case store.FateMoved:
		fate.State, fate.DueMs, fate.Maybe = table.StateStored, row.DueAt.UnixMilli(), row.Maybe
	}
	return fate
}

func (d *draining) leave(ref ledgerRef) {
	if d.left == nil {
		d.left = map[ledgerRef]bool{}
	}
	d.left[ref] = true
}

// drainStale settles what came too late for Redis.
func (d *draining) drainStale(ctx context.Context) error {
	d.settler.mu.Lock()
	list := d.settler.stale
	d.settler.stale = nil
	d.settler.mu.Unlock()
	var kept []table.Fate
	var away error
	for batch := range slices.Chunk(list, settleBatch) {
		if away != nil || ctx.Err() != nil {
			kept = append(kept, batch...)
			continue
		}
		known, err := d.offer(ctx, batch)
		away = errors.Join(away, err)
		for i, f := range batch {
			if known[i] == table.KnownBusy {
				kept = append(kept, f)
			}
		}
	}
	d.settler.mu.Lock()
	d.settler.stale = append(kept, d.settler.stale...)
	d.settler.mu.Unlock()
	d.busy = d.busy || len(kept) > 0
	if away == nil {
		away = ctx.Err()
	}
	return away
}

// drainLedgers reads the ledgers from their beginning to their end, and settles
// in batches that may be of several. One that fails is read again later, all
// others are read nevertheless.
func (d *draining) drainLedgers(ctx context.Context) error {
	var redis error
	for i, ref := range d.refs {
		if d.away != nil || ctx.Err() != nil {
			for _, ref := range d.refs[i:] {
				d.leave(ref)
			}
			break
		}
		if err := d.drainLedger(ctx, ref); err != nil {
			redis = errors.Join(redis, err)
			d.leave(ref)
		}
	}
	if err := d.finish(ctx); err != nil {
		redis = errors.Join(redis, err)
	}
	switch {
	case d.away != nil:
		return d.away
	case ctx.Err() != nil:
		return ctx.Err()
	case redis != nil:
		return fmt.Errorf("%w: %w", errRedis, redis)
	}
	return nil
}

func (d *draining) drainLedger(ctx context.Context, ref ledgerRef) error {
	for cursor := uint64(0); ; {
		call, cancel := context.WithTimeout(ctx, ledgerTimeout)
		rows, next, err := d.settler.queues[ref.queue].Store.SettledPage(call, ref.shard, cursor, settleBatch)
		cancel()
		if err != nil {
			return err
		}
		for _, row := range rows {
			d.batch = append(d.batch, told{row, ref})
			if len(d.batch) >= settleBatch {
				if err := d.finish(ctx); err != nil {
					return err
				}
			}
		}
		if cursor = next; cursor == 0 || d.away != nil {
			return nil //nolint:nilerr // err is nil here.
		}
	}
}

// finish settles the batch and forgets what is settled.
func (d *draining) finish(ctx context.Context) error {
	batch := d.batch
	d.batch = nil
	if len(batch) == 0 {
		return nil
	}
	fates := make([]table.Fate, len(batch))
	for i, t := range batch {
		fates[i] = fateOf(t.from.queue, t.SettledRow)
	}
	known, err := d.offer(ctx, fates)
	d.away = errors.Join(d.away, err)
	done := map[ledgerRef][]store.SettledRow{}
	for i, t := range batch {
		if known[i] == table.KnownBusy {
			d.leave(t.from)
			d.busy = true
			continue
		}
		done[t.from] = append(done[t.from], t.SettledRow)
	}
	var redis error
	for ref, rows := range done {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), ledgerTimeout)
		if err := d.settler.queues[ref.queue].Store.ForgetSettled(call, ref.shard, rows); err != nil {
			redis = errors.Join(redis, err)
			d.leave(ref)
		}
		cancel()
	}
	return redis
}

// offer offers the fates to each database until one knows them. Where one is
// away, what the others do not know is busy.
func (d *draining) offer(ctx context.Context, fates []table.Fate) ([]table.Known, error) {
	all := make([]table.Known, len(fates))
	rest := make([]int, len(fates))
	for i := range fates {
		rest[i] = i
	}
	var away error
	for _, database := range d.settler.config.Databases {
		if len(rest) == 0 {
			break
		}
		asked := make([]table.Fate, len(rest))
		for n, i := range rest {
			asked[n] = fates[i]
		}
		answers, err := database.Ended().Settle(ctx, asked)
		if err != nil {
			database.Heed(err)
			away = errors.Join(away, err)
			continue
		}
		var absent []int
		settled := 0
		for n, i := range rest {
			switch all[i] = answers[n]; answers[n] {
			case table.KnownAbsent:
				absent = append(absent, i)
			case table.KnownSettled:
				settled++
			case table.KnownBusy:
			}
		}
		if database.OnSettled != nil && settled > 0 {
			database.OnSettled(settled)
		}
		rest = absent
	}
	if away != nil {
		for _, i := range rest {
			all[i] = table.KnownBusy
		}
	}
	return all, away
}
