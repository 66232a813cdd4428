package store

import (
	"context"
	"time"
)

// ForgetFsync has the node asked again whether it can confirm its disk, as one
// that has become primary.
func (q *Queue) ForgetFsync(ctx context.Context) {
	q.conn.ForgetFsync(ctx, q.keys.Layout())
}

// Settled are the entries of the shard's ledger.
func (q *Rows) Settled(ctx context.Context, shard, most int) (all []SettledRow, err error) {
	for cursor := uint64(0); ; {
		rows, next, err := q.SettledPage(ctx, shard, cursor, most)
		all = append(all, rows...)
		if cursor = next; err != nil || cursor == 0 {
			return all, err
		}
	}
}

// EarlierCall makes schedules, or replaces, that began together now and of which nothing is known.
func (q *Producer) EarlierCall(replace bool) func(id string) *Earlier {
	verb := scheduleVerb.name
	if replace {
		verb = replaceVerb.name
	}
	began := &start{queue: q.keys.Name, verb: verb, at: time.Now()}
	return func(id string) *Earlier {
		return &Earlier{Queue: q.keys.Name, Verb: verb, ID: id, token: newTokens(1)[0], start: began}
	}
}

// Age makes the call one that began so long ago.
func (e *Earlier) Age(d time.Duration) { e.start.at = e.start.at.Add(-d) }

// Parts are the scripts of a settlement.
var Parts = parts

// MostMessages is how many messages, slots or entries a script handles at the most;
// those that are not here handle one, or what there is.
var MostMessages = map[string]int{
	"schedule": scheduleVerb.most, "replace": replaceVerb.most, "put": putVerb.most, "cancel": mostChanged, "reschedule": mostChanged,
	"claim": MaxBatch, "settle": MaxBatch, "mark": MaxBatch, "reclaim": MaxBatch, "parked": slotsPage,
	"forget": MaxBatch, "rows": rowsBatch, "remove": removeBatch, "get": 1,
}

// Tracks is how many tracks a node has.
const Tracks = tracks

// InLine is how many callers wait for a run of others.
func (q *Queue) InLine() int { return q.coalescer.lines.Waiting() }

// CancelThese cancels several messages with as few scripts as may be.
func (q *Producer) CancelThese(ctx context.Context, ids ...string) []Answer {
	return q.changeAll(ctx, cancelVerb, When{}, ids)
}

// RescheduleAll reschedules several messages with as few scripts as may be.
func (q *Producer) RescheduleAll(ctx context.Context, when When, ids ...string) []Answer {
	return q.changeAll(ctx, rescheduleVerb, when, ids)
}

func (q *Producer) changeAll(ctx context.Context, v verb, when When, ids []string) []Answer {
	calls := make([]*call, len(ids))
	for i, token := range newTokens(len(ids)) {
		calls[i] = newCall(ids[i], "", token, nil)
		calls[i].asked.when = when
	}
	q.do(ctx, &v, calls)
	return answers(calls)
}
