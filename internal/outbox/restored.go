package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/delaybridge/delaybridge/internal/store"
	"github.com/delaybridge/delaybridge/internal/wait"
)

const (
	// scanRows is how many messages one step in Redis looks at, less where they
	// are large.
	scanRows = 1000
	// scanBytes is how much one step should make Redis read, bodies included.
	scanBytes = 256 << 10
)

// removeEnded removes messages that have ended, as a row with their token says:
// Redis has them where it was put back to an earlier state. A row that has ended
// lives no more, and nobody else has its token: so it does not matter when it was
// read. What no row tells of, and what is in flight, stays.
func (a *Auditor) removeEnded(ctx context.Context, q *AuditedQueue, dry bool, report *report) error {
	layout, err := q.Store.LoadLayout(ctx)
	if err != nil {
		return fmt.Errorf("read layout: %w", err)
	}
	for shard := range layout.Polled() {
		cursor, count := "0", 16
		pause := newBackoff()
		for {
			rows, next, bytes, err := q.Store.RowsPage(ctx, shard, cursor, count)
			if err == nil {
				err = a.removePage(ctx, q, rows, dry, report)
			}
			a.away.observe(ctx, err)
			if err != nil {
				if !wait.Sleep(ctx, pause.Next()) {
					return errors.Join(ctx.Err(), err)
				}
				continue
			}
			switch {
			case bytes > scanBytes:
				count = max(1, count/4)
			case bytes*4 <= scanBytes:
				count = min(4*count, scanRows)
			}
			if cursor = next; cursor == "0" {
				break
			}
		}
	}
	return nil
}

func (a *Auditor) removePage(ctx context.Context, q *AuditedQueue, rows []store.SettledRow, dry bool, report *report) error {
	var ended []store.SettledRow
	for _, d := range a.config.Databases {
		found, err := d.endedOf(ctx, q.Name, rows)
		if err != nil {
			return err
		}
		ended = append(ended, found...)
	}
	if len(ended) == 0 {
		return nil
	}
	n := len(ended)
	if !dry {
		var err error
		if n, err = q.Store.Remove(ctx, ended); err != nil {
			return err
		}
	}
	report.add(Counts{Removed: int64(n)})
	return nil
}

// endedOf are those of which a row says that they have ended, and how.
func (d *Database) endedOf(ctx context.Context, queue string, rows []store.SettledRow) ([]store.SettledRow, error) {
	all := make(map[under]store.SettledRow, len(rows))
	list := make([]identity, len(rows))
	for i, row := range rows {
		list[i] = identity{queue, row.Key, row.ID}
		all[under{list[i], row.Token}] = row
	}
	if list = d.possible(list); len(list) == 0 {
		return nil, nil
	}
	var ended []store.SettledRow
	q := d.of(list, "queue, message_key, message_id, token, status", "op = 0 AND status > 1", "")
	err := d.within(ctx, func(tx querier) error {
		return q.each(ctx, tx, func(rows *sql.Rows) error {
			var u under
			var how state
			err := rows.Scan(&u.queue, &u.key, &u.id, &u.token, &how)
			row, found := all[u]
			if found && err == nil {
				row.What = store.FateCancelled
				if how == statePublished {
					row.What = store.FatePublished
				}
				ended = append(ended, row)
			}
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read ended rows: %w", err)
	}
	return ended, nil
}
