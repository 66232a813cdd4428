package store

import (
	"context"

	"github.com/delaybridge/delaybridge/internal/message"
)

var cancelVerb = verb{
	name:   "cancel",
	script: cancelScript,
	keys: func(k shardKeys) []string {
		return []string{k.due, k.msg, k.attempts, k.dead, k.deadMsg, k.gone, k.goneTTL, k.meta, k.settled}
	},
	head: func(r run, _ *call) []any {
		return []any{r.epoch, r.notAfter, r.number, tombstone.Milliseconds(), flag(r.last)}
	},
	each: func(c *call) []any { return []any{c.token, message.Member(c.id, c.key)} },
}

// Cancel removes a message that waits or is dead. Its codes are Done,
// DoneMaybePublished, InFlight and NotFound.
func (q *Queue) Cancel(ctx context.Context, id, key string, durable Durability) Answer {
	v := cancelVerb
	v.durable = durable
	c := &call{id: id, key: key, token: newTokens(1)[0]}
	q.do(ctx, &v, []*call{c})
	return c.answer
}
