package store

import (
	"context"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"

	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

var putVerb = verb{
	name:   "put",
	script: scripts.Put,
	most:   100,
	keys: func(k keys.Shard) []string {
		return []string{k.Due, k.Msg, k.Attempts, k.Dead, k.DeadMsg, k.Gone, k.Settled, k.Meta, k.Wake, k.GoneTTL, k.Tags}
	},
	head: func(r *run) []any {
		return []any{r.layout.Epoch, r.span, scripts.Flag(r.last), message.FormatVersion, MaxBatchBytes}
	},
	each: func(args []any, a *params) []any {
		return append(args, message.Member(a.id, a.key), a.when.String(), a.mark, a.untilMs, a.stored)
	},
	asks:   true,
	pinned: true,
}

// Put brings the messages of rows to Redis, each once under its token, even if
// others do the same at the same time. It returns one answer per row, by index:
//
//   - Created: the message is here now.
//   - Mine: it is here already, waiting, in flight or dead.
//   - EndedPublished, EndedCancelled, EndedMoved: it has ended; nothing was done.
//   - Waiting, InFlight, Dead: another message of that identity is in the way.
//
// Errors are those of [Producer.Schedule]; [ErrReload], after which the caller must
// lock its row again; and [ErrNotDurable], if the write is not confirmed as
// [Queue.WithDurability] asks. After that and [ErrUnknown] it may be repeated at any
// time. A row needs a [Mark] if its message may have been here and ended before its
// tombstone expired: a minute ago, or since its Until.
//
// If the caller's right to write the row may end (a lock ends with its
// connection), ctx must end within [MaxCall] of the instant at which it got
// that right, by the monotonic clock: no run takes effect later than one
// timeout after ctx.
func (q *Rows) Put(ctx context.Context, rows []Row) []Answer {
	return q.put(ctx, time.Time{}, rows)
}

// PutWithin is Put for a caller that knows the rows to be unchanged only until
// deadline, by the monotonic clock: no run takes effect after it, and a run
// that may have happened is not repeated (ErrUnknown).
func (q *Rows) PutWithin(ctx context.Context, deadline time.Time, rows []Row) []Answer {
	ctx, cancel := context.WithDeadlineCause(ctx, deadline, errDeadline)
	defer cancel()
	return q.put(ctx, deadline, rows)
}

func (q *Rows) put(ctx context.Context, within time.Time, rows []Row) []Answer {
	v := putVerb
	v.within, v.epoch, v.durable = within, q.epoch, q.durable
	list := make([]Answer, len(rows))
	calls, index := make([]*call, 0, len(rows)), make([]int, 0, len(rows))
	for i, row := range rows {
		if !message.IsOutboxToken(row.Token) {
			list[i].Err = fmt.Errorf("put: %w", errToken)
			continue
		}
		m := row.Message
		calls, index = append(calls, &call{params: params{
			id: m.ID, key: m.Key, when: at(row.DueAt), token: row.Token, mark: row.mark(),
			untilMs: row.untilMs(), stored: message.Encode(row.Token, m), tags: m.CountTags(),
		}}), append(index, i)
	}
	if len(calls) > 0 {
		q.do(ctx, &v, calls)
	}
	for n, i := range index {
		list[i] = calls[n].answer.confirmed()
	}
	return list
}
