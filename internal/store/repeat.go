package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// repeat calls a read, or a write that may as well happen twice, until it has an
// answer or ctx ends. Where a shard refuses it, see reconcile.
func (q *Queue) repeat(ctx context.Context, do func(*Layout) error) error {
	ctx, cancel := context.WithTimeout(ctx, MaxCall)
	defer cancel()
	var since time.Time // the first refusal
	var cause error
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		layout, err := q.Layout(ctx)
		if err == nil {
			err = do(layout)
		}
		switch {
		case err == nil:
			return nil
		case isRefusal(err):
			if since.IsZero() {
				since = time.Now()
			}
			q.reconcile(ctx, err, since)
		case errors.Is(err, ErrNoLayout), errors.Is(err, errReply):
			return err
		case classify(err) == classFatal:
			return wrapUnavailable(err)
		}
		cause = tellingCause(cause, err)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w: %w", ErrUnavailable, cause)
		}
	}
}
