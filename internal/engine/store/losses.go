package store

import (
	"context"

	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
)

// Loss is what Redis has lost of a queue.
type Loss = layout.Loss

// What may be lost.
const (
	LostQueue  = layout.LostQueue
	LostShards = layout.LostShards
	LostLayout = layout.LostLayout
)

// Losses are those that nobody has acknowledged, the first one first.
func (q *Admin) Losses(ctx context.Context) (losses []Loss, err error) {
	err = q.repeat(ctx, func(*Layout) error {
		losses, err = q.layouts.Losses(ctx)
		return err
	})
	return losses, err
}

// Acknowledge forgets the losses of these ids, and counts those that were there.
func (q *Admin) Acknowledge(ctx context.Context, ids []string) (n int, err error) {
	if n, err = q.layouts.Acknowledge(ctx, ids); err != nil {
		return 0, wrapUnavailable(err)
	}
	return n, nil
}
