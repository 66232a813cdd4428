package relay

import (
	"context"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/outbox"
)

// listen wakes the lanes when a producer notifies, until ctx ends. Notifications are
// hints: polling finds rows whose notification was lost while the session was down.
func (r *Relay) listen(ctx context.Context) error {
	pause := outbox.NewBackoff()
	heard := func() {
		pause.Reset()
		r.Wake()
	}
	for {
		err := r.db.Listen(ctx, heard)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // A failure at the end means nothing.
		}
		r.log.DebugContext(ctx, "outbox does not listen", "err", err)
		if !wait.Sleep(ctx, pause.Next()) {
			return nil
		}
	}
}
