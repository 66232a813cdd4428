package store

import (
	"context"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// NewTokens returns unused tokens of operations.
func NewTokens(n int) []string { return newTokens(n) }

// BulkChange is what is done to many messages, each under a token that the caller has written
// down before: who does it again, in whatever process, is answered what was answered first,
// for as long as that is remembered.
type BulkChange struct {
	// To is when they are due from now on; nil cancels them.
	To *When
	// OnlyDead leaves all others alone; a cancel of dead letters counts as a purge, and one that
	// moves them as a redrive alone: its code is NoBody where there is nothing to be put back.
	OnlyDead bool
	// Topic, where not empty, is that of the messages; others are answered OtherTopic.
	Topic string
	// Remembered is for how long, beside a minute, the answers are found again.
	Remembered time.Duration
}

// BulkItem names one message of a [BulkChange].
type BulkItem struct {
	Member string
	// Token is that of the operation, Life the one that must be in force: another message is
	// NotFound. An empty Life is any.
	Token, Life string
}

// ChangeMany does it; one answer an item, by index. It is as durable as the queue asks.
func (q *Queue) ChangeMany(ctx context.Context, change BulkChange, items []BulkItem) []Answer {
	calls := make([]*call, len(items))
	for i, item := range items {
		id, key := message.SplitMember(item.Member)
		calls[i] = newCall(id, key, item.Token, nil)
		calls[i].params.life = item.Life
		if change.To != nil {
			calls[i].params.when = *change.To
		}
	}
	if len(calls) > 0 {
		v := change.verb()
		v.durable = q.durable
		q.do(ctx, &v, calls)
	}
	return answers(calls)
}

// verb is what is run, each time as a further run: it looks first what an earlier one
// has answered.
func (c *BulkChange) verb() verb {
	v := cancelVerb
	v.each = func(args []any, a *params) []any {
		return append(args, a.token, message.Member(a.id, a.key), "", a.life)
	}
	if c.To != nil {
		v = rescheduleVerb
		v.each = func(args []any, a *params) []any {
			return append(args, a.token, message.Member(a.id, a.key), a.when.String(), "", "", a.life)
		}
	}
	v.alone = true
	remembered, onlyDead, topics := (Tombstone + c.Remembered).Milliseconds(), scripts.Flag(c.OnlyDead), ""
	if c.Topic != "" {
		topics = packTopics([]string{c.Topic})
	}
	v.head = func(r *run) []any {
		return []any{r.layout.Epoch, r.spanAndOld(), anyRun, remembered, scripts.Flag(r.last), MaxBatchBytes, onlyDead, topics}
	}
	return v
}

// CancelMembers cancels messages if they have the tag, unless that is empty; one answer a
// member, by index.
func (q *Producer) CancelMembers(ctx context.Context, tag string, members []string, durable Durability) []Answer {
	v := cancelVerb
	v.durable = durable
	if tag != "" {
		v.alone = true
		v.head = func(r *run) []any {
			return []any{r.layout.Epoch, r.spanAndOld(), r.number(), Tombstone.Milliseconds(), scripts.Flag(r.last), MaxBatchBytes, "t" + tag, r.topics}
		}
	}
	calls := make([]*call, len(members))
	for i, token := range newTokens(len(members)) {
		id, key := message.SplitMember(members[i])
		calls[i] = newCall(id, key, token, nil)
	}
	q.do(ctx, &v, calls)
	return answers(calls)
}
