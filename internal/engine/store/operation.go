package store

import (
	"context"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"

	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// The numbers of runs that look for an earlier answer first. An operation of a row may be
// applied again at any time, so each of its runs does.
const (
	anyRun    = 2
	tracedRun = 3 // and leaves its own, whatever it is
	freshRun  = 4 // leaves its own in the place of an earlier one
)

var cancelRowVerb = verb{
	name:   "cancel",
	script: scripts.Cancel,
	most:   1,
	ends:   true,
	keys:   cancelVerb.keys,
	head:   operationHead,
	each: func(args []any, a *params) []any {
		return append(args, answerToken(a.token), message.Member(a.id, a.key), a.target, "")
	},
	pinned: true,
}

var rescheduleRowVerb = verb{
	name:   "reschedule",
	script: scripts.Reschedule,
	most:   1,
	keys:   rescheduleVerb.keys,
	head:   operationHead,
	each: func(args []any, a *params) []any {
		return append(args, answerToken(a.token), message.Member(a.id, a.key), a.when.String(), a.token, a.target, "")
	},
	pinned: true,
}

func operationHead(r *run) []any {
	return []any{r.layout.Epoch, r.spanAndOld(), anyRun, Tombstone.Milliseconds(), scripts.Flag(r.last), MaxBatchBytes, scripts.Flag(false), r.topics}
}

// answerToken is the token under which Redis remembers the answer of an operation. Under
// the operation's own token, the answer would look like the end of that token's message.
func answerToken(token string) string { return "=" + token[len(message.OutboxMark):] }

// Operation is a row that cancels or reschedules a message.
type Operation struct {
	ID, Key string
	// Token is the operation's own: 16 bytes that begin with '~'.
	Token string
	// Target is the token in force of the message's row. A different message of
	// that identity is left alone.
	Target string
}

func (o *Operation) call() *call {
	return &call{params: params{id: o.ID, key: o.Key, token: o.Token, target: o.Target}}
}

// CancelRow is [Producer.Cancel] for a row. For as long as a tombstone lives no late [Rows.Put] under the
// target brings the message here, even if there was nothing to cancel (NotFound). Two more codes,
// EndedPublished and EndedCancelled, say how it had ended before. The ledger gets no entry for a cancel by
// the row itself. See Put for how ctx must end, and for [ErrReload] and [ErrNotDurable]. It may be repeated;
// from a minute after it took effect on, the answer is NotFound.
func (q *Rows) CancelRow(ctx context.Context, o Operation) Answer {
	return q.operate(ctx, &cancelRowVerb, o.call())
}

// RescheduleRow is [Producer.Reschedule] for a row, see [Rows.CancelRow]. Done and
// DoneMaybePublished: Token is the one in force from now on. NotFound: nothing is
// here, and the target has ended; put the row under Token. From a minute after it took effect on, it is
// DoneMaybePublished if the message was published since: nobody knows any more whether a copy was out before.
func (q *Rows) RescheduleRow(ctx context.Context, o Operation, due time.Time) Answer {
	c := o.call()
	c.params.when = at(due)
	return q.operate(ctx, &rescheduleRowVerb, c)
}

func (q *Rows) operate(ctx context.Context, v *verb, c *call) Answer {
	if a := &c.params; !message.IsOutboxToken(a.token) || !message.IsOutboxToken(a.target) {
		return Answer{Err: fmt.Errorf("%s: %w", v.name, errToken)}
	}
	named := *v
	named.epoch, named.durable = q.epoch, q.durable
	answer := q.doOne(ctx, &named, c)
	return answer.confirmed()
}
