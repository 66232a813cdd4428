package store

import (
	"context"

	"github.com/delaybridge/delaybridge/internal/message"
)

// Request asks to schedule one message.
type Request struct {
	Message *message.Message
	When    When
}

var scheduleVerb = verb{
	name:   "schedule",
	script: scheduleScript,
	keys: func(k shardKeys) []string {
		return []string{k.due, k.msg, k.attempts, k.dead, k.deadMsg, k.gone, k.meta, k.wake}
	},
	head: func(r run, first *call) []any {
		return []any{r.epoch, r.notAfter, r.number, first.startMs, message.FormatVersion, flag(r.last)}
	},
	each: eachScheduled,
	asks: true,
}

var replaceVerb = verb{
	name:   "replace",
	script: replaceScript,
	keys: func(k shardKeys) []string {
		return []string{k.due, k.msg, k.attempts, k.dead, k.deadMsg, k.gone, k.goneTTL, k.meta, k.wake, k.settled}
	},
	head: func(r run, _ *call) []any {
		return []any{
			r.epoch, r.notAfter, r.number, tombstone.Milliseconds(), message.FormatVersion, MaxBatchBytes, flag(r.last),
		}
	},
	each: eachScheduled,
}

func eachScheduled(c *call) []any {
	return []any{message.Member(c.id, c.key), c.when.String(), c.stored}
}

// Schedule creates messages; those whose identity is taken are answered with
// where the other one is, or, with replace, take its place. There is one answer
// a request, by index.
func (q *Queue) Schedule(ctx context.Context, requests []Request, replace bool, durable Durability) []Answer {
	v := scheduleVerb
	if replace {
		v = replaceVerb
	}
	v.durable = durable
	calls := make([]*call, len(requests))
	for i, token := range newTokens(len(requests)) {
		m := requests[i].Message
		calls[i] = &call{id: m.ID, key: m.Key, when: requests[i].When, stored: message.Encode(token, m)}
	}
	q.do(ctx, &v, calls)
	return answers(calls)
}

func answers(calls []*call) []Answer {
	list := make([]Answer, len(calls))
	for i, c := range calls {
		list[i] = c.answer
	}
	return list
}
