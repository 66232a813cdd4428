package store

import (
	"context"

	"github.com/delaybridge/delaybridge/internal/engine/message"

	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

var rescheduleVerb = verb{
	name:   "reschedule",
	script: scripts.Reschedule,
	most:   mostChanged,
	keys: func(k keys.Shard) []string {
		return []string{k.Due, k.Msg, k.Attempts, k.Dead, k.DeadMsg, k.Gone, k.GoneTTL, k.Meta, k.Wake, k.Settled}
	},
	head: func(r *run) []any {
		return []any{r.layout.Epoch, r.spanAndOld(), r.number(), r.tombstoneMs(), scripts.Flag(r.last), MaxBatchBytes, scripts.Flag(false), r.topics}
	},
	each: func(args []any, a *params) []any {
		return append(args, a.token, message.Member(a.id, a.key), a.when.String(), "", "", "")
	},
}

// Reschedule moves a waiting message to another due time; a dead letter is
// redriven at that time. The token of an outbox message stays in force, and the
// ledger tells its row of the new time. Its codes are Done, DoneMaybePublished, InFlight and NotFound.
func (q *Producer) Reschedule(ctx context.Context, id, key string, when When, durable Durability) Answer {
	return q.reschedule(ctx, newCall(id, key, newTokens(1)[0], nil), when, durable)
}

// RescheduleAgain repeats a reschedule whose outcome is unknown.
func (q *Producer) RescheduleAgain(ctx context.Context, e *UnknownCall, when When, durable Durability) Answer {
	return q.reschedule(ctx, newCall(e.ID, e.Key, e.token, e), when, durable)
}

func (q *Producer) reschedule(ctx context.Context, c *call, when When, durable Durability) Answer {
	v := rescheduleVerb
	v.durable = durable
	c.params.when = when
	return q.doOne(ctx, &v, c)
}
