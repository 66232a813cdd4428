package store

import (
	"context"
	"time"

	"github.com/delaybridge/delaybridge/internal/store/conn"
	"github.com/delaybridge/delaybridge/internal/store/scripts"
)

// mostCoalesced is how many messages of one call and shard may travel with those
// of others: more fill a script well enough.
const mostCoalesced = 16

// coalescer has the runs of concurrent calls travel together: where a run of a
// shard is under way, those that come meanwhile become one. A lone caller waits for
// nobody, and a shard that hangs keeps none but its own callers.
//
// They share the run only: what it does not answer, each call goes on with by itself.
type coalescer struct {
	lines conn.Lines[line, *passenger]
}

// line is what runs must have in common.
type line struct {
	script  *scripts.Script
	durable Durability
	run     run
}

// passenger is what one caller has in a run.
type passenger struct {
	calls    []*call
	deadline time.Time
	err      error // of the run
}

// WithCoalescing has concurrent calls of few messages share runs, and returns the
// queue. It is called before the queue is used.
func (q *Queue) WithCoalescing() *Queue {
	q.coalescer = &coalescer{}
	return q
}

// mayCoalesce reports whether the calls may travel with those of others. A second
// run has a start of its own, and one that has little time would cut that of the others.
func (d *doing) mayCoalesce(ctx context.Context, r run, calls []*call) bool {
	return d.q.coalescer != nil && !r.second && !d.verb.pinned && d.verb.within.IsZero() &&
		len(calls) <= mostCoalesced && !endsSoon(ctx)
}

// coalesce runs the calls with those of others. Once they have left, they end with the
// run, though ctx may end before.
func (d *doing) coalesce(ctx context.Context, r run, calls []*call) error {
	deadline, _ := ctx.Deadline()
	mine := &passenger{calls: calls, deadline: deadline}
	key := line{d.verb.script, d.verb.durable, r}
	err := d.q.coalescer.lines.Do(ctx, key, mine, d.mostOf, func(all []*passenger) { d.carry(ctx, r, all) })
	if err != nil {
		return err
	}
	return mine.err
}

// carry runs the calls of all for as long as each of them has time.
func (d *doing) carry(ctx context.Context, r run, all []*passenger) {
	if len(all) == 1 {
		all[0].err = d.runGroup(ctx, r, all[0].calls)
		return
	}
	var calls []*call
	deadline := all[0].deadline
	for _, p := range all {
		calls = append(calls, p.calls...)
		if p.deadline.Before(deadline) {
			deadline = p.deadline
		}
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancel()
	err := d.runGroup(ctx, r, calls)
	for _, p := range all {
		p.err = err
	}
}

// mostOf is how many of those that wait one script may take. Where they have too many
// bytes for one, runGroup makes several.
func (d *doing) mostOf(waiting []*passenger) int {
	calls := 0
	for i, p := range waiting {
		if calls += len(p.calls); i > 0 && calls > d.verb.most {
			return i
		}
	}
	return len(waiting)
}
