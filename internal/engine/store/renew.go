package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

var renewVerb = verb{
	name:   "renew",
	script: scripts.Renew,
	most:   80,
	keys: func(k keys.Shard) []string {
		return []string{k.Due, k.Msg, k.Attempts, k.Gone, k.GoneTTL, k.Settled, k.Meta, k.Wake, k.Tags}
	},
	head: func(r *run) []any {
		return []any{r.layout.Epoch, r.span, Tombstone.Milliseconds(), message.FormatVersion, MaxBatchBytes}
	},
	each: func(args []any, a *params) []any {
		return append(args, message.Member(a.id, a.key), a.when.String(), a.mark, a.target, a.stored)
	},
	pinned: true,
}

// errBefore is returned if a message would replace one that belongs to no row.
var errBefore = errors.New("only a message under another row's token gives way")

// Renew replaces waiting messages under Row.Before by the rows' messages of the same
// identity. Row.Before is a token no longer in force: the row's own from before a
// reschedule, or that of a row that has ended. Redis has such messages after a restore.
// It returns one answer per row, by index:
//
//   - Replaced: it is here now. DoneMaybePublished: and it is marked.
//   - Mine: it was here already.
//   - InFlight: the other one is being published. NotFound: it no longer waits.
//   - EndedPublished, EndedCancelled, EndedMoved: as for [Rows.Put].
//
// The caller holds the row's lock, and knows that no live row has the token Before. Its
// Mark is not MarkDueIfOlder. See [Rows.Put] for errors, for how ctx must end, and for
// repetitions.
func (q *Rows) Renew(ctx context.Context, rows []Row) []Answer {
	v := renewVerb
	v.epoch, v.durable = q.epoch, q.durable
	list := make([]Answer, len(rows))
	calls, index := make([]*call, 0, len(rows)), make([]int, 0, len(rows))
	for i, row := range rows {
		if !message.IsRowToken(row.Token) || !message.IsRowToken(row.Before) {
			list[i].Err = fmt.Errorf("renew: %w", errBefore)
			continue
		}
		m := row.Message
		calls, index = append(calls, &call{params: params{
			id: m.ID, key: m.Key, when: at(row.DueAt), token: row.Token, target: row.Before, mark: row.mark(), stored: message.Encode(row.Token, m), tags: m.CountTags(),
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

// Tokens returns, by index, the token of the message that Redis has of each row's
// identity, waiting or in flight; empty if it has none, or one that belongs to no row. Of
// a row it needs ID and Key of the message.
func (q *Rows) Tokens(ctx context.Context, list []Row) ([]string, error) {
	layout, err := q.Layout(ctx)
	if err != nil {
		return nil, err
	}
	type place struct {
		shard  int
		member string
	}
	index, byShard := map[place][]int{}, map[int][]any{}
	for i, row := range list {
		for _, home := range layout.Homes(row.Message.ID, row.Message.Key) {
			at := place{home, message.Member(row.Message.ID, row.Message.Key)}
			if index[at] == nil {
				byShard[home] = append(byShard[home], at.member)
			}
			index[at] = append(index[at], i)
		}
	}
	tokens := make([]string, len(list))
	for shard, members := range byShard {
		for len(members) > 0 {
			n := min(len(members), rowsBatch)
			rows, err := q.rowsOf(ctx, shard, members[:n])
			if err != nil {
				return nil, err
			}
			for _, row := range rows {
				for _, i := range index[place{shard, message.Member(row.ID, row.Key)}] {
					tokens[i] = row.Token
				}
			}
			members = members[n:]
		}
	}
	return tokens, nil
}
