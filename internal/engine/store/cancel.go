package store

import (
	"context"

	"github.com/delaybridge/delaybridge/internal/engine/message"

	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// mostChanged is how many messages one script cancels or reschedules.
const mostChanged = 50

var cancelVerb = verb{
	name:   "cancel",
	script: scripts.Cancel,
	most:   mostChanged,
	ends:   true,
	keys: func(k keys.Shard) []string {
		return []string{k.Due, k.Msg, k.Attempts, k.Dead, k.DeadMsg, k.Gone, k.GoneTTL, k.Meta, k.Settled, k.Tags}
	},
	head: func(r *run) []any {
		return []any{r.layout.Epoch, r.spanAndOld(), r.number(), r.tombstoneMs(), scripts.Flag(r.last), MaxBatchBytes, scripts.Flag(false), r.topics}
	},
	each: func(args []any, a *params) []any { return append(args, a.token, message.Member(a.id, a.key), "", "") },
}

// Cancel removes a message that waits or is dead. Its codes are Done,
// DoneMaybePublished, InFlight and NotFound.
func (q *Producer) Cancel(ctx context.Context, id, key string, durable Durability) Answer {
	v := cancelVerb
	v.durable = durable
	return q.doOne(ctx, &v, newCall(id, key, newTokens(1)[0], nil))
}

// CancelAgain repeats a cancel whose outcome is unknown.
func (q *Producer) CancelAgain(ctx context.Context, e *UnknownCall, durable Durability) Answer {
	v := cancelVerb
	v.durable = durable
	return q.doOne(ctx, &v, newCall(e.ID, e.Key, e.token, e))
}

func (q *core) doOne(ctx context.Context, v *verb, c *call) Answer {
	q.do(ctx, v, []*call{c})
	return c.answer
}
