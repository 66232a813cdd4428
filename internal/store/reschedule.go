package store

import (
	"context"

	"github.com/delaybridge/delaybridge/internal/message"
)

var rescheduleVerb = verb{
	name:   "reschedule",
	script: rescheduleScript,
	keys: func(k shardKeys) []string {
		return []string{k.due, k.msg, k.attempts, k.dead, k.deadMsg, k.gone, k.goneTTL, k.meta, k.wake, k.settled}
	},
	head: func(r run, _ *call) []any {
		return []any{r.epoch, r.notAfter, r.number, tombstone.Milliseconds(), flag(r.last)}
	},
	each: func(c *call) []any { return []any{c.token, message.Member(c.id, c.key), c.when.String()} },
}

// Reschedule moves a waiting message to another due time; a dead letter is
// redriven at that time. The token of an outbox message stays in force, and the
// ledger tells its row of the new time. Its codes are Done, DoneMaybePublished, InFlight and NotFound.
func (q *Queue) Reschedule(ctx context.Context, id, key string, when When, durable Durability) Answer {
	v := rescheduleVerb
	v.durable = durable
	c := &call{id: id, key: key, when: when, token: newTokens(1)[0]}
	q.do(ctx, &v, []*call{c})
	return c.answer
}
