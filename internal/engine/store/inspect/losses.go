package inspect

import (
	"context"

	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// Losses are those that nobody has acknowledged, the first one first.
func (a *Admin) Losses(ctx context.Context) (losses []store.Loss, err error) {
	err = a.queue.Repeat(ctx, func(*store.Layout) error {
		losses, err = a.queue.Layouts().Losses(ctx)
		return err
	})
	return losses, err
}

// Acknowledge forgets the losses of these ids, and counts those that were there.
func (a *Admin) Acknowledge(ctx context.Context, ids []string) (n int, err error) {
	if n, err = a.queue.Layouts().Acknowledge(ctx, ids); err != nil {
		return 0, store.Unavailable(err)
	}
	return n, nil
}
