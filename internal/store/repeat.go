package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/internal/wait"

	"github.com/delaybridge/delaybridge/internal/store/layout"
	"github.com/delaybridge/delaybridge/internal/store/rediserr"
	"github.com/delaybridge/delaybridge/internal/store/scripts"
)

// repeat calls a read, or a write that may as well happen twice, until it has an
// answer or ctx ends. Where a shard refuses it, see reconcile.
func (q *Queue) repeat(ctx context.Context, do func(*Layout) error) error {
	ctx, cancel := context.WithTimeout(ctx, MaxCall)
	defer cancel()
	var since time.Time // the first refusal
	var cause error
	pause := wait.Backoff{Initial: firstPause, Limit: longPause}
	for {
		l, err := q.Layout(ctx)
		if err == nil {
			err = do(l)
		}
		switch {
		case err == nil:
			return nil
		case layout.IsRefusal(err):
			if since.IsZero() {
				since = time.Now()
			}
			q.layouts.Reconcile(ctx, err, since)
		case errors.Is(err, ErrNoLayout), errors.Is(err, scripts.ErrReply):
			return err
		case rediserr.Classify(err) == rediserr.Fatal:
			return wrapUnavailable(err)
		}
		cause = rediserr.Telling(cause, err)
		if !wait.Sleep(ctx, pause.Next()) {
			return fmt.Errorf("%w: %w", ErrUnavailable, cause)
		}
	}
}
