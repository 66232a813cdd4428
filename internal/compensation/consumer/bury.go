package consumer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/source"
)

// HeaderReason is the header that says why a message is in the dead topic.
const HeaderReason = "compensation-reason"

// reasonMax bounds the header, in bytes.
const reasonMax = 200

// bury moves deliveries unchanged to the dead topic. Only those that the broker
// has acknowledged there are done.
func (w *Writer) bury(ctx context.Context, batch []*delivery, indices []int, errs []error) {
	if len(indices) == 0 {
		return
	}
	now := time.Now()
	letters := make([]message.Message, len(indices))
	for n, i := range indices {
		sum := sha256.Sum256(batch[i].Body)
		name := hex.EncodeToString(sum[:12])
		letters[n] = message.Message{
			ID: name, Token: name, Topic: source.DeadTopic(w.config.Topic), Queue: w.config.Store.Name(), Body: batch[i].Body,
			Headers: map[string]string{HeaderReason: source.HeaderText(batch[i].reason, reasonMax)},
			DueAt:   now, ScheduledAt: now, Attempt: 1,
		}
	}
	outcomes := sinks.Publish(ctx, w.config.Dead, letters)
	for n, i := range indices {
		outcome := outcomes[n]
		d := batch[i]
		attributes := []any{
			"topic", letters[n].Topic, "result", string(d.dead), "reason", d.reason, "bytes", len(batch[i].Body),
		}
		if m := d.compensation; m != nil {
			attributes = append(attributes, "id", m.ID, "key", m.Key)
		}
		switch outcome.Class {
		case sinks.Acknowledged:
			w.config.Logger.ErrorContext(ctx, "compensation cannot be redone: it is in the dead topic",
				append(attributes, "event", "compensation_dead")...)
		case sinks.Permanent: // Keeping it would stop all that come after it.
			w.config.Logger.ErrorContext(ctx, "compensation lost: it cannot be redone, and the broker refuses it in the dead topic",
				append(attributes, "event", "compensation_lost", "err", outcome.Err)...)
		default:
			errs[i] = fmt.Errorf("publish to %s: %s: %w", letters[n].Topic, outcome.Class, outcome.Err)
			continue
		}
		w.count(d.dead)
	}
}
