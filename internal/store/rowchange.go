package store

import (
	"context"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/internal/message"
)

// An operation of a row may be applied again at any time, so each of its runs
// asks first what an earlier one has answered.
const anyRun = 2

var cancelRowVerb = verb{
	name:   "cancel",
	script: cancelScript,
	keys:   cancelVerb.keys,
	head:   operationHead,
	each: func(c *call) []any {
		return []any{answerToken(c.token), message.Member(c.id, c.key), c.target}
	},
}

var rescheduleRowVerb = verb{
	name:   "reschedule",
	script: rescheduleScript,
	keys:   rescheduleVerb.keys,
	head:   operationHead,
	each: func(c *call) []any {
		return []any{answerToken(c.token), message.Member(c.id, c.key), c.when.String(), c.token, c.target}
	},
}

func operationHead(r run, _ *call) []any {
	return []any{r.epoch, r.notAfter, anyRun, tombstone.Milliseconds(), flag(r.last)}
}

// answerToken is under what the answer of an operation is remembered: under its
// token it would be taken for the end of the message of that token.
func answerToken(token string) string { return "=" + token[len(message.OutboxMark):] }

// CancelRow is [Queue.Cancel] for an operation of a row: token is the
// operation's, target that of the message's row, or empty where the caller does
// not know it. For as long as a tombstone lives no late [Queue.Put] under target
// brings the message here, also where there was nothing to cancel (NotFound).
// Two more codes tell what had become of it before: EndedPublished and
// EndedCancelled. The ledger does not tell of what the row itself has cancelled.
// How ctx must end is told at Put. It may be repeated; once a minute has passed
// since it took effect, the answer is NotFound.
func (q *Queue) CancelRow(ctx context.Context, id, key, token, target string) Answer {
	c := &call{id: id, key: key, token: token, target: target}
	return q.operate(ctx, &cancelRowVerb, c)
}

// RescheduleRow is [Queue.Reschedule] for an operation of a row, see
// [Queue.CancelRow]. Done and DoneMaybePublished: token is the one in force from
// now on. NotFound: nothing is here, and target has ended; the row is to be
// brought here under token.
func (q *Queue) RescheduleRow(ctx context.Context, id, key, token, target string, due time.Time) Answer {
	c := &call{id: id, key: key, token: token, target: target, when: at(due)}
	return q.operate(ctx, &rescheduleRowVerb, c)
}

func (q *Queue) operate(ctx context.Context, v *verb, c *call) Answer {
	if !message.IsOutboxToken(c.token) || c.target != "" && !message.IsOutboxToken(c.target) {
		return Answer{Err: fmt.Errorf("%s: %w", v.name, errToken)}
	}
	q.do(ctx, v, []*call{c})
	return c.answer
}
