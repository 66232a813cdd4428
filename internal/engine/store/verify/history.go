package verify

import (
	"context"
	"fmt"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/sound"
)

// endsAtOnce is how many ends of a history one script removes at the most.
const endsAtOnce = 500

// history looks at what a shard remembers, also where its queue keeps no history any more.
func (w *walk) history(ctx context.Context) error {
	if err := w.trim(ctx); err != nil {
		return err
	}
	ended, ends := w.keys.History()
	if err := w.scan(ctx, "ZSCAN", ended, w.counted(w.lacking(sound.NoEnd, w.hashed, ends))); err != nil {
		return err
	}
	return w.scan(ctx, "HSCAN", ends, w.counted(w.lacking(sound.UnlistedEnd, w.scored, ended)))
}

// trim looks for more ends than the queue keeps, and removes the oldest, some at a time.
func (w *walk) trim(ctx context.Context) error {
	there, err := w.countEnds(ctx, w.shard)
	if err != nil {
		return err
	}
	for trimmed := false; ; trimmed = true {
		layout, err := w.queue.LoadLayout(ctx) // Somebody may have raised the limit meanwhile.
		if err != nil {
			return err
		}
		most := layout.EndsOfShard()
		answer, err := w.mend(ctx, sound.Finding{Kind: sound.ManyEnds}, "", most)
		switch {
		case err != nil:
			return err
		case answer == mendMended:
			if err := w.step(ctx, endsAtOnce); err != nil {
				return err
			}
			continue
		case answer == mendSound && !trimmed:
			return nil
		}
		detail := fmt.Sprintf("%d are remembered, %d may be", there, most)
		return w.breach(sound.Finding{Kind: sound.ManyEnds, Detail: detail}, trimmed)
	}
}

// countEnds counts what a shard remembers.
func (v *verification) countEnds(ctx context.Context, shard int) (int64, error) {
	ended, _ := v.layout.Keys()[shard].History()
	return store.Repeat(ctx, v.queue, func(*store.Layout) (int64, error) { return v.queue.Redis(ctx).ZCard(ctx, ended).Result() })
}
