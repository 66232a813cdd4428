package auditor

import (
	"context"
	"errors"
	"fmt"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

const (
	// scanRows is how many messages one step in Redis looks at, less where they
	// are large.
	scanRows = 1000
	// scanBytes is how much one step should make Redis read, bodies included.
	scanBytes = 256 << 10
)

// removeEnded removes messages that have ended, as a row with their token says, and replaces
// messages under an earlier token by their live rows. A Redis that was restored to an earlier state
// has both. An ended row never lives again, and no other row has its token, so it does not matter
// when it was read. Messages without a row, and those in flight, stay.
func (a *Auditor) removeEnded(ctx context.Context, q *Queue, dry bool, report *report) error {
	layout, err := q.Store.LoadLayout(ctx)
	if err != nil {
		return fmt.Errorf("read layout: %w", err)
	}
	for shard := range layout.Polled() {
		cursor, count := "0", 16
		pause := outbox.NewBackoff()
		for {
			rows, next, bytes, err := q.Store.RowsPage(ctx, shard, cursor, count)
			if err == nil {
				err = a.removePage(ctx, q, rows, dry, report)
			}
			a.away.Observe(ctx, err)
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

func (a *Auditor) removePage(ctx context.Context, q *Queue, rows []store.RowFate, dry bool, report *report) error {
	list := make([]table.Version, len(rows))
	for i, row := range rows {
		list[i] = table.Version{Identity: table.Identity{Queue: q.Name, Key: row.Key, ID: row.ID}, Token: row.Token}
	}
	var ended []store.RowFate
	for _, d := range a.config.Databases {
		found, err := d.Ended().Among(ctx, list)
		if err != nil {
			return err
		}
		for i, row := range rows {
			if how, ok := found[list[i]]; ok {
				row.What = store.FateCancelled
				if how == table.StatePublished {
					row.What = store.FatePublished
				}
				ended = append(ended, row)
			}
		}
	}
	if err := a.renewPage(ctx, q, list, dry, report); err != nil {
		return err
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

// renewPage replaces messages that wait under another token by their pending rows, which no
// comparison of stored rows finds.
func (a *Auditor) renewPage(ctx context.Context, q *Queue, list []table.Version, dry bool, report *report) error {
	names := make([]table.Identity, len(list))
	for i, v := range list {
		names[i] = v.Identity
	}
	for _, d := range a.config.Databases {
		living, err := d.Ended().Living(ctx, names, true)
		if err != nil {
			return err
		}
		for _, v := range list {
			delete(living, v)
		}
		rows := make([]*table.Row, 0, len(living))
		for v, number := range living {
			rows = append(rows, &table.Row{Identity: v.Identity, Number: number, Token: v.Token})
		}
		p := &pass{Auditor: a, db: d, queue: q, dry: dry, report: report}
		c := p.comparison()
		c.renew(rows)
		if err := p.work(ctx, c); err != nil {
			return err
		}
	}
	return nil
}
