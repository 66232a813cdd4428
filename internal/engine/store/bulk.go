package store

import (
	"context"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// NewTokens returns unused tokens of operations.
func NewTokens(n int) []string { return newTokens(n) }

// BulkChange is a change of many messages, each under a token that the caller has recorded
// before. A repetition, in any process, gets the first answer for as long as Redis remembers
// it.
type BulkChange struct {
	// To is the new due time; nil cancels them.
	To *When
	// OnlyDead leaves all but dead letters alone. Their cancel counts as a purge, and their move
	// as a redrive, with the code NoBody if there is no body to put back.
	OnlyDead bool
	// Topic, if not empty, must be the topic of the messages; others are answered OtherTopic.
	Topic string
	// Never has a cancel name, as Life, the call that creates a message, see [TokenOf]. It also keeps that call from creating it later, for
	// as long as the answers are remembered, and finds a message that a reschedule has given another token. EndedPublished says that
	// it has been created, and has ended otherwise; all answers are remembered.
	Never bool
	// Durable, unless zero, is how durable it is; else it is as durable as the queue asks.
	Durable Durability
	// Remembered is how long, in addition to a minute, Redis remembers the answers.
	Remembered time.Duration
}

// BulkItem names one message of a [BulkChange].
type BulkItem struct {
	Member string
	// Token is that of the operation. Life is the token that must be in force; a message
	// with another one is NotFound. An empty Life matches any.
	Token, Life string
}

// ChangeMany makes the change and returns one answer per item, by index.
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
		if v.durable = change.Durable; !v.durable.IsSet() {
			v.durable = q.durable
		}
		q.do(ctx, &v, calls)
	}
	return answers(calls)
}

// verb is the script of the change. Every run is a second run, so it first looks for
// an earlier answer.
func (c *BulkChange) verb() verb {
	v := cancelVerb
	v.each = func(args []any, a *params) []any {
		target, life := "", a.life
		if c.Never {
			target, life = a.life, ""
		}
		return append(args, a.token, message.Member(a.id, a.key), target, life)
	}
	if c.To != nil {
		v = rescheduleVerb
		v.each = func(args []any, a *params) []any {
			return append(args, a.token, message.Member(a.id, a.key), a.when.String(), "", "", a.life)
		}
	}
	v.alone = true
	remembered, topics := (Tombstone + c.Remembered).Milliseconds(), ""
	number, which := anyRun, any(scripts.Flag(c.OnlyDead))
	if c.Never {
		number, which = tracedRun, "n"
	}
	if c.Topic != "" {
		topics = packTopics([]string{c.Topic})
	}
	v.head = func(r *run) []any {
		return []any{r.layout.Epoch, r.spanAndOld(), number, remembered, scripts.Flag(r.last), MaxBatchBytes, which, topics}
	}
	return v
}

// CancelMembers cancels messages, if tag is not empty only those that have it, and
// returns one answer per member, by index.
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
