package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// Rows is the view of a queue for callers whose messages belong to rows of a
// database: the outbox's relay, settler and auditor, and the consumer of
// compensation messages.
type Rows struct {
	*core

	epoch string // see Pin
}

// Rows returns the outbox's view of the queue.
func (q *Queue) Rows() *Rows { return &Rows{core: q.core} }

// Pin returns a view bound to the epoch in force: its Put, PutWithin, CancelRow
// and RescheduleRow answer [ErrReload] once the epoch has changed, as it does
// when Redis loses a shard. So a caller that pins before it locks a row, or
// commits, never writes by what it knew before a loss. An unpinned view binds
// each call at its start.
func (q *Rows) Pin(ctx context.Context) (*Rows, error) {
	layout, err := q.Layout(ctx)
	if err != nil {
		return nil, err
	}
	return &Rows{core: q.core, epoch: layout.Epoch}, nil
}

// Life returns the queue's life when the view was pinned, see [Layout.Life]; empty if it is not pinned.
func (q *Rows) Life() string { return layout.LifeOf(q.epoch) }

// Born returns when each shard in use was made, by Redis' clock; zero if that is
// unknown. Redis has lost whatever a shard had before.
func (q *Rows) Born(ctx context.Context) ([]time.Time, error) {
	layout, err := q.Layout(ctx)
	if err != nil {
		return nil, err
	}
	return q.layouts.Born(ctx, layout)
}

// Absent is the code if nothing is known of the row's message, see [Rows.Peek].
const Absent = free

var peekVerb = verb{
	name:   "peek",
	script: scripts.Put,
	most:   putVerb.most,
	keys:   putVerb.keys,
	head: func(r *run) []any {
		return []any{r.layout.Epoch, r.span, scripts.Flag(false), message.FormatVersion, MaxBatchBytes}
	},
	each: putVerb.each,
	asks: true,
}

// Peek is [Rows.Put] that changes nothing: Absent stands for Created. Of a row
// it needs the token, and ID and Key of the message.
func (q *Rows) Peek(ctx context.Context, rows []Row) []Answer {
	calls := make([]*call, len(rows))
	for i, row := range rows {
		calls[i] = &call{params: params{
			id: row.Message.ID, key: row.Message.Key, token: row.Token, stored: []byte(row.Token), mark: row.mark(),
		}}
	}
	if len(calls) > 0 {
		q.do(ctx, &peekVerb, calls)
	}
	return answers(calls)
}

// RowsPage returns about most waiting messages of a shard that belong to rows of
// a database, from a cursor that is "0" at first, and the next cursor, "0" at the
// end. bytes is the size of the bodies that Redis has read for it, in scripts of
// at most MaxBatchBytes. A message may come twice.
func (q *Rows) RowsPage(ctx context.Context, shard int, cursor string, most int) (rows []RowFate, next string, bytes int, err error) {
	return q.readRows(ctx, shard, []any{cursor, min(most, rowsBatch), MaxBatchBytes})
}

// rowsOf returns those of the members that a shard has and that belong to rows.
func (q *Rows) rowsOf(ctx context.Context, shard int, members []any) (rows []RowFate, err error) {
	rows, _, _, err = q.readRows(ctx, shard, append([]any{"0", 0, MaxBatchBytes}, members...))
	return rows, err
}

// readRows runs the script until it has read everything asked for.
func (q *Rows) readRows(ctx context.Context, shard int, args []any) (rows []RowFate, next string, bytes int, err error) {
	k, err := q.keysOf(shard)
	if err != nil {
		return nil, "", 0, err
	}
	for {
		cmd, err := q.conn.Run(ctx, scripts.Rows, []string{k.Due, k.Msg}, args...)
		if err != nil {
			return nil, "", 0, fmt.Errorf("read rows of shard %d: %w", shard, err)
		}
		r := scripts.NewReply(cmd)
		list, rest := r.List(2), r.List(3)
		for i := 0; i+1 < len(list.Values); i += 2 {
			id, key := message.SplitMember(list.Text(i))
			rows = append(rows, RowFate{ID: id, Key: key, Token: list.Text(i + 1)})
		}
		next, bytes = r.Text(0), bytes+int(r.Int(1))
		if err := errors.Join(r.Err, list.Err); err != nil || len(rest.Values) == 0 {
			return rows, next, bytes, err
		}
		args = append([]any{next, 0, MaxBatchBytes}, rest.Values...)
	}
}

// The most messages that one script reads, see verb.most.
const (
	rowsBatch   = 400
	removeBatch = 80
)

// Remove removes the waiting messages of ended rows, if they wait under that
// very token, and returns how many it removed; What says how the row ended. A
// message in flight stays. It may be repeated.
func (q *Rows) Remove(ctx context.Context, rows []RowFate) (removed int, err error) {
	layout, err := q.Layout(ctx)
	if err != nil {
		return 0, err
	}
	byShard := map[int][]RowFate{}
	for _, row := range rows {
		for _, home := range layout.Homes(row.ID, row.Key) {
			byShard[home] = append(byShard[home], row)
		}
	}
	for shard, rows := range byShard {
		for len(rows) > 0 {
			n, looked, err := q.removeFrom(ctx, layout, layout.Keys()[shard], rows[:min(len(rows), removeBatch)])
			if removed += n; err != nil {
				return removed, fmt.Errorf("remove rows from shard %d of %s: %w", shard, q.keys.Name, err)
			}
			rows = rows[looked:]
		}
	}
	return removed, nil
}

// removeFrom handles the first rows, as many as one script may read.
func (q *Rows) removeFrom(ctx context.Context, l *Layout, k keys.Shard, rows []RowFate) (removed, looked int, err error) {
	keys, history := l.WithHistory(k, []string{k.Due, k.Msg, k.Attempts, k.Gone, k.GoneTTL, k.Meta, k.Tags})
	args := []any{Tombstone.Milliseconds(), MaxBatchBytes, history}
	for _, row := range rows {
		args = append(args, message.Member(row.ID, row.Key), row.Token, string(row.What))
	}
	cmd, err := q.conn.Run(ctx, scripts.Remove, keys, args...)
	if err != nil {
		return 0, 0, err
	}
	r := scripts.NewReply(cmd)
	removed, looked = int(r.Int(0)), int(r.Int(1))
	if r.Err == nil && (looked < 1 || looked > len(rows)) {
		r.Err = scripts.ErrReply
	}
	return removed, looked, r.Err
}
