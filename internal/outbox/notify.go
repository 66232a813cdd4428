package outbox

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/delaybridge/delaybridge/internal/wait"
)

// listen wakes the lanes when a producer notifies, until ctx ends. Notifications
// are hints: what is lost while the session is away is found by polling.
func (r *Relay) listen(ctx context.Context) error {
	pause := newBackoff()
	for {
		err := r.listenOnce(ctx, &pause)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // What fails at the end says nothing.
		}
		r.log.DebugContext(ctx, "outbox does not listen", "err", err)
		if !wait.Sleep(ctx, pause.Next()) {
			return nil
		}
	}
}

func (r *Relay) listenOnce(ctx context.Context, pause *wait.Backoff) error {
	connect, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(connect, r.db.listen)
	if err != nil {
		return fmt.Errorf("connect to listen: %w", err)
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), connectTimeout)
		defer cancel()
		_ = conn.Close(end) // Nothing is lost with it.
	}()
	if _, err := conn.Exec(connect, "LISTEN "+pgx.Identifier{r.db.name}.Sanitize()); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	pause.Reset()
	r.Wake() // For what was notified before.
	for {
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return fmt.Errorf("wait for notification: %w", err)
		}
		r.Wake()
	}
}
