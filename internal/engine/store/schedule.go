package store

import (
	"context"
	"fmt"
	"strconv"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/wait"

	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/store/rediserr"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// Producer is the view of a queue for those who schedule and change messages: the SDK and the commands. To
// read messages, use package inspect. Its verbs guarantee "one call, one effect", see state.
type Producer struct{ *core }

// Producer returns the producers' view of the queue.
func (q *Queue) Producer() *Producer { return &Producer{q.core} }

// CreateLayout makes the queue's layout if there is none, and does not change an
// existing one. It tries until Redis answers or ctx ends; then its error is
// [ErrUnavailable].
func (q *Producer) CreateLayout(ctx context.Context, want Layout) error {
	pause := wait.Backoff{Initial: firstPause, Limit: longPause}
	var cause error
	for {
		_, err := q.layouts.Create(ctx, want)
		if err == nil {
			return nil
		}
		cause = rediserr.Telling(cause, err)
		if rediserr.Classify(err) == rediserr.Fatal || !wait.Sleep(ctx, pause.Next()) {
			return fmt.Errorf("%w: %w", ErrUnavailable, cause)
		}
	}
}

// Request asks to schedule one message.
type Request struct {
	Message *message.Message
	When    When
	// Earlier, unless nil, is the call that this one repeats.
	Earlier *UnknownCall
}

var scheduleVerb = verb{
	name:   "schedule",
	script: scripts.Schedule,
	most:   150,
	keys: func(k keys.Shard) []string {
		return []string{k.Due, k.Msg, k.Attempts, k.Dead, k.DeadMsg, k.Gone, k.Meta, k.Wake, k.Deadlines, k.Tags}
	},
	head: func(r *run) []any {
		start := ""
		if r.second {
			start = strconv.FormatInt(r.startMs, 10)
		}
		return []any{r.layout.Epoch, r.span, start, message.FormatVersion + digit(r.last) + digit(r.relative) + digit(r.tags > 0) + maxBatchBytes + r.more()}
	},
	each: func(args []any, a *params) []any {
		return append(args, a.when.String(), message.Member(a.id, a.key))
	},
	storedLast: true,
	asks:       true,
	gonettl:    true,
}

var maxBatchBytes = strconv.Itoa(MaxBatchBytes)

// more returns the rare arguments of schedule.lua: the life of tombstones, and topics.
func (r *run) more() string {
	if r.topics == "" && r.traces.kept == 0 {
		return ""
	}
	return " " + r.tracedMs() + " " + r.topics
}

// tracedMs returns how long the traces of created messages live, "0" if there are none, and
// whether other answers leave one (t), also in the place of an earlier one (f).
func (r *run) tracedMs() string {
	text := strconv.FormatInt(r.traces.kept.Milliseconds(), 10)
	switch r.number() {
	case tracedRun:
		text += "t"
	case freshRun:
		text += "f"
	}
	return text
}

func digit(set bool) string {
	if set {
		return "1"
	}
	return "0"
}

var replaceVerb = verb{
	name:   "replace",
	script: scripts.Replace,
	most:   45,
	keys: func(k keys.Shard) []string {
		return []string{k.Due, k.Msg, k.Attempts, k.Dead, k.DeadMsg, k.Gone, k.GoneTTL, k.Meta, k.Wake, k.Settled, k.Tags}
	},
	head: func(r *run) []any {
		return []any{
			r.layout.Epoch, r.span, 1 + scripts.Flag(r.second), Tombstone.Milliseconds(), message.FormatVersion, MaxBatchBytes, scripts.Flag(r.last), r.topics, r.tracedMs(),
		}
	},
	each: func(args []any, a *params) []any {
		return append(args, message.Member(a.id, a.key), a.when.String(), a.stored)
	},
}

// Schedule creates messages. If an identity is taken, the answer says where the
// other message is, or, with replace, the new message replaces it. It returns
// one answer per request, by index. An Earlier call must have the same Queue,
// Verb ("replace" with replace), ID and Key.
func (q *Producer) Schedule(ctx context.Context, requests []Request, replace bool, durable Durability) []Answer {
	v := scheduleVerb
	if replace {
		v = replaceVerb
	}
	v.durable = durable
	calls, made := make([]*call, len(requests)), make([]call, len(requests))
	for i, token := range newTokens(len(requests)) {
		r := &requests[i]
		calls[i], made[i] = &made[i], *newCall(r.Message.ID, r.Message.Key, token, r.Earlier)
		calls[i].params.when, calls[i].params.stored = r.When, message.Encode(calls[i].params.token, r.Message)
		calls[i].params.tags = r.Message.CountTags()
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
