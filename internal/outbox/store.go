package outbox

import (
	"context"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// Store is what relay and auditor need of one queue in Redis. All methods are safe
// for concurrent use, end with ctx, and may be repeated with the same token. The
// methods are those of [store.Rows], and documented there.
type Store interface {
	// Pin returns the store bound to the present epoch: it writes nothing once
	// Redis has lost a part of the queue.
	Pin(ctx context.Context) (Store, error)
	// Life is the queue's life when the store was pinned.
	Life() string
	Born(ctx context.Context) ([]time.Time, error)
	Clock(ctx context.Context) (time.Time, error)
	LoadLayout(ctx context.Context) (*store.Layout, error)

	Put(ctx context.Context, rows []store.Row) []store.Answer
	Peek(ctx context.Context, rows []store.Row) []store.Answer
	CancelRow(ctx context.Context, o store.Operation) store.Answer
	RescheduleRow(ctx context.Context, o store.Operation, due time.Time) store.Answer

	Renew(ctx context.Context, rows []store.Row) []store.Answer
	Tokens(ctx context.Context, rows []store.Row) ([]string, error)

	RowsPage(ctx context.Context, shard int, cursor string, most int) (rows []store.RowFate, next string, bytes int, err error)
	Remove(ctx context.Context, rows []store.RowFate) (removed int, err error)
}

// NewStore returns the outbox's view of a queue.
func NewStore(rows *store.Rows) Store { return door{rows} }

type door struct{ *store.Rows }

// Pin implements [Store].
func (d door) Pin(ctx context.Context) (Store, error) {
	rows, err := d.Rows.Pin(ctx)
	return door{rows}, err
}

// Queue is a queue whose rows the relay brings into Redis.
type Queue struct {
	Name  string
	Store Store
	// Sink and MaxMessage (bytes) are the limits that a row must keep to.
	Sink       message.SinkType
	MaxMessage int
}
