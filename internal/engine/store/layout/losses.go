package layout

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Loss is what Redis has lost of a queue, as an instance has noticed. The layout's key keeps
// it until an operator acknowledges it; readers of the layout read named fields, so they
// skip it. If everything was lost, the new layout has it.
type Loss struct {
	// ID identifies the loss: instances that notice the same loss use the same one.
	ID string `json:"-"`
	// At is when it was first noticed.
	At time.Time `json:"at"`
	// Instance is the instance that noticed it first.
	Instance string `json:"instance"`
	// Kind is what was lost.
	Kind LossKind `json:"kind"`
	// Shards are the lost shards, sorted, if Kind is [LostShards].
	Shards []int `json:"shards,omitempty"`
}

// LossKind is what Redis has lost.
type LossKind string

// What may be lost.
const (
	// LostQueue is the whole queue, layout and messages.
	LostQueue LossKind = "queue"
	// LostShards is shards, and the messages in them.
	LostShards LossKind = "shards"
	// LostLayout is the layout, which was restored from the shards.
	LostLayout LossKind = "layout"
)

const (
	lossField = "lost:"
	// MostLosses is how many are kept; operators with that many unacknowledged losses
	// need no more.
	MostLosses = 20
)

// RecordLoss records a loss; the same one by several instances is one record. If two
// instances add shards at the same moment, the record may lack some, which the log has.
func (g *Registry) RecordLoss(ctx context.Context, loss Loss) error {
	known, err := g.Losses(ctx)
	if err != nil {
		return err
	}
	if at := slices.IndexFunc(known, func(k Loss) bool { return k.ID == loss.ID }); at >= 0 {
		before := known[at].Shards
		loss.At, loss.Instance, loss.Shards = known[at].At, known[at].Instance, slices.Concat(before, loss.Shards)
		slices.Sort(loss.Shards)
		if loss.Shards = slices.Compact(loss.Shards); len(loss.Shards) == len(before) {
			return nil
		}
	} else if len(known) >= MostLosses {
		return nil
	}
	text, err := json.Marshal(loss)
	if err != nil {
		return err
	}
	if err := g.conn.Client(ctx).HSet(ctx, g.queue.Layout(), lossField+loss.ID, text).Err(); err != nil {
		return fmt.Errorf("record a loss of %s: %w", g.queue.Name, err)
	}
	return nil
}

// Losses returns the losses that nobody has acknowledged, oldest first.
func (g *Registry) Losses(ctx context.Context) (losses []Loss, err error) {
	fields, err := g.conn.Client(ctx).HGetAll(ctx, g.queue.Layout()).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("read losses of %s: %w", g.queue.Name, err)
	}
	for field, text := range fields {
		id, ok := strings.CutPrefix(field, lossField)
		if !ok {
			continue
		}
		loss := Loss{Kind: LostQueue} // Reported even if it cannot be decoded.
		_ = json.Unmarshal([]byte(text), &loss)
		loss.ID = id
		losses = append(losses, loss)
	}
	slices.SortFunc(losses, func(a, b Loss) int { return cmp.Or(a.At.Compare(b.At), strings.Compare(a.ID, b.ID)) })
	return losses, nil
}

// Acknowledge deletes the losses of these ids, and returns how many of them existed.
func (g *Registry) Acknowledge(ctx context.Context, ids []string) (int, error) {
	if len(ids) == 0 {
		return 0, nil
	}
	fields := make([]string, len(ids))
	for i, id := range ids {
		fields[i] = lossField + id
	}
	n, err := g.conn.Client(ctx).HDel(ctx, g.queue.Layout(), fields...).Result()
	if err != nil {
		return 0, fmt.Errorf("acknowledge losses of %s: %w", g.queue.Name, err)
	}
	return int(n), nil
}
