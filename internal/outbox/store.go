package outbox

import (
	"context"
	"time"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/store"
)

// Store is what the relay needs of one queue in Redis. All methods are safe for
// concurrent use, end with ctx, and may be repeated with the same token. The
// methods are those of [store.Rows], and documented there.
type Store interface {
	// Put writes messages under their rows' tokens; one answer a row, by index.
	Put(ctx context.Context, rows []store.Row) []store.Answer
	// CancelRow cancels under the operation's token. What was written under the
	// target, where it has one, is told apart, and a later write under it is refused.
	CancelRow(ctx context.Context, o store.Operation) store.Answer
	// RescheduleRow moves the message to due; the operation's token is then the one
	// in force.
	RescheduleRow(ctx context.Context, o store.Operation, due time.Time) store.Answer
}

// Queue is a queue whose rows the relay brings into Redis.
type Queue struct {
	Name  string
	Store Store
	// Sink and MaxMessage (bytes) are the limits that a row must keep to.
	Sink       message.SinkType
	MaxMessage int
}
