package store

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/store/conn"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// mostCoalesced is how many messages of one call and node may travel with those of
// others: more fill their scripts well enough.
const mostCoalesced = 64

// tracks is how many trains may be under way to a node at once, each for other shards:
// Redis works on one while the client makes the next. As many calls share a script as
// with a single track.
const tracks = 4

// coalescer has the runs of concurrent calls travel together: where runs of a node's
// track are under way, those that come meanwhile become one train. A lone caller waits
// for nobody, and a node that hangs keeps none but its own callers.
//
// They share the runs only: what these do not answer, each call goes on with by itself.
type coalescer struct {
	lines conn.Lines[line, *passenger]
}

// line is what trains must have in common.
type line struct {
	script  *scripts.Script
	durable Durability
	epoch   string
	topics  string // of the callers
	node    *redis.Client
	track   int // of the node; where there is none, each shard has its own
}

// passenger is what one caller has in a train.
type passenger struct {
	groups   []*group
	deadline time.Time
}

// WithCoalescing has concurrent calls of few messages share runs, and returns the
// queue. It is called before the queue is used.
func (q *Queue) WithCoalescing() *Queue {
	q.coalescer = &coalescer{}
	return q
}

// mayCoalesce reports whether the calls may travel with those of others. A second
// run has a start of its own, and one that has little time would cut that of the others.
func (d *doing) mayCoalesce(ctx context.Context, t *train) bool {
	if d.q.coalescer == nil || d.verb.pinned || d.verb.alone || !d.verb.within.IsZero() || endsSoon(ctx) {
		return false
	}
	calls := 0
	for _, g := range t.groups {
		if calls += len(g.calls); calls > mostCoalesced || g.run.second {
			return false
		}
	}
	return true
}

// coalesce runs the calls with those of others. Once they have left, they end with the
// train, though ctx may end before.
func (d *doing) coalesce(ctx context.Context, t *train) error {
	deadline, _ := ctx.Deadline()
	shard := t.groups[0].run.shard // One track may carry what is of others, too.
	key, most := line{d.verb.script, d.verb.durable, d.layout.Epoch, d.topics, t.node, shard % tracks}, MaxBatch
	if t.node == nil {
		key.track, most = shard, d.verb.most
	}
	mine := &passenger{groups: t.groups, deadline: deadline}
	err := d.q.coalescer.lines.Do(ctx, key, mine, func(waiting []*passenger) int { return mostOf(waiting, most) },
		func(all []*passenger) { d.carry(ctx, t.node, all) })
	return errors.Join(err, t.err())
}

// carry runs the calls of all for as long as each of them has time.
func (d *doing) carry(ctx context.Context, node *redis.Client, all []*passenger) {
	if len(all) == 1 {
		_ = d.drive(ctx, &train{node: node, groups: all[0].groups})
		return
	}
	shared, byRun := &train{node: node}, map[run]*group{}
	deadline := all[0].deadline
	for _, p := range all {
		if p.deadline.Before(deadline) {
			deadline = p.deadline
		}
		for _, g := range p.groups {
			if byRun[g.run] == nil {
				byRun[g.run] = &group{run: g.run, most: g.most}
				shared.groups = append(shared.groups, byRun[g.run])
			}
			byRun[g.run].calls = append(byRun[g.run].calls, g.calls...)
		}
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancel()
	_ = d.drive(ctx, shared)
	for _, p := range all {
		for _, g := range p.groups {
			g.err = byRun[g.run].err
		}
	}
}

// mostOf is how many of those that wait have so many messages at the most. Where they
// have too many bytes for a script each, drive makes several.
func mostOf(waiting []*passenger, most int) int {
	for i, p := range waiting {
		for _, g := range p.groups {
			most -= len(g.calls)
		}
		if i > 0 && most < 0 {
			return i
		}
	}
	return len(waiting)
}
