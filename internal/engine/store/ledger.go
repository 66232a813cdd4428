package store

import (
	"context"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"

	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// WithLedger makes settling tell the rows of outbox messages that these were
// published: by an entry in the ledger of the shard, which stays until
// [Rows.ForgetFates]. notify is called after a settle that wrote entries, unless
// the settle's answer was lost; it must not block. WithLedger returns the queue;
// call it before the queue is used. Without it the ledger has only changes by
// others than the row: cancel, replace, purge and reschedule.
func (q *Queue) WithLedger(notify func(shard int)) *Queue {
	q.ledger = notify
	return q
}

// Fate is what happened to an outbox message other than by its row.
type Fate byte

// The fates, as the ledger stores them.
const (
	// FatePublished: the broker has acknowledged it.
	FatePublished Fate = 'p'
	// FateCancelled: it was cancelled, replaced or purged.
	FateCancelled Fate = 'c'
	// FateMoved: it has another due time, and lives on.
	FateMoved Fate = 'd'
)

// RowFate is an entry of the ledger: the fate of a row's message.
type RowFate struct {
	Token, ID, Key string
	What           Fate
	// DueAt is the new due time of FateMoved.
	DueAt time.Time
	// Maybe says that a copy of the moved or cancelled message may be out.
	Maybe bool

	entry string
}

// FatePage returns about most entries of the shard's ledger in no order, from a
// cursor that is 0 at first, and the next cursor, 0 at the end. An entry may be
// returned again until it is forgotten, and may change from FateMoved to
// another fate.
func (q *Rows) FatePage(ctx context.Context, shard int, cursor uint64, most int) ([]RowFate, uint64, error) {
	k, err := q.keysOf(shard)
	if err != nil {
		return nil, 0, err
	}
	page, next, err := q.conn.Client(ctx).HScan(ctx, k.Settled, cursor, "", int64(most)).Result()
	if err != nil {
		return nil, 0, fmt.Errorf("read ledger: %w", err)
	}
	rows := make([]RowFate, 0, len(page)/2)
	for i := 0; i+1 < len(page); i += 2 {
		rows = append(rows, parseFate(page[i], page[i+1]))
	}
	return rows, next, nil
}

func parseFate(token, entry string) RowFate {
	what, dueMs, maybe, member := scripts.CutLedger(entry)
	row := RowFate{Token: token, What: Fate(what), Maybe: maybe, entry: entry}
	if dueMs != 0 {
		row.DueAt = time.UnixMilli(dueMs)
	}
	row.ID, row.Key = message.SplitMember(member)
	return row
}

// ForgetFates removes entries that [Rows.FatePage] returned from the shard's
// ledger, unless they have changed since. A published or cancelled message leaves
// a tombstone, since a writer that has lost its row's lock may still come.
func (q *Rows) ForgetFates(ctx context.Context, shard int, rows []RowFate) error {
	k, err := q.keysOf(shard)
	if err != nil {
		return err
	}
	for start := 0; start < len(rows); start += MaxBatch {
		batch := rows[start:min(start+MaxBatch, len(rows))]
		args := make([]any, 0, 1+2*len(batch))
		args = append(args, Tombstone.Milliseconds())
		for _, row := range batch {
			args = append(args, row.Token, row.entry)
		}
		if _, err := q.conn.Run(ctx, scripts.Forget, []string{k.Settled, k.Gone, k.GoneTTL}, args...); err != nil {
			return fmt.Errorf("forget in ledger: %w", err)
		}
	}
	return nil
}
