package store

import (
	"context"
	"errors"
	"slices"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

const (
	// parallelTrains is how many trains of one call are under way at once.
	parallelTrains = 8
	// callBytes is what a call counts for in a train, beside what it stores.
	callBytes = 256
)

// group is calls that may share runs, and how far they have got.
type group struct {
	run   run
	calls []*call // without those that a script has looked at
	most  int     // how many of them the next script may take
	err   error   // of its runs
}

// train is groups whose runs travel to one node together, or a single group.
type train struct {
	node   *redis.Client // nil where there is no such node, or runs may not travel together
	groups []*group
	bytes  int
}

// runAll runs the script for all calls, those of one node together.
func (d *doing) runAll(ctx context.Context) error {
	trains := d.trains(ctx, d.groups())
	if len(trains) == 1 {
		return d.runTrain(ctx, trains[0])
	}
	all := make([]error, len(trains))
	var running errgroup.Group
	running.SetLimit(parallelTrains)
	for i, t := range trains {
		running.Go(func() error {
			all[i] = d.runTrain(ctx, t)
			return nil
		})
	}
	_ = running.Wait()
	return errors.Join(all...)
}

// groups puts together the calls of this round that may share runs, in their order.
func (d *doing) groups() (groups []*group) {
	byRun := make(map[run]*group)
	for _, c := range d.calls {
		r := run{
			shard: c.visit.homes[c.visit.stage], last: c.visit.stage == len(c.visit.homes)-1, epoch: d.layout.Epoch, topics: d.topics, kept: c.kept != nil,
		}
		if c.state == maybeRan {
			r.second, r.start = true, c.start
		}
		g := byRun[r]
		if g == nil {
			g = &group{run: r, most: d.verb.most}
			byRun[r], groups = g, append(groups, g)
		}
		g.calls = append(g.calls, c)
	}
	return groups
}

// trains puts the groups of a node into one train, unless they have more bytes than
// one script may have: then what is sent at once has no more than that, either.
func (d *doing) trains(ctx context.Context, groups []*group) (trains []*train) {
	open := map[*redis.Client]*train{}
	for _, g := range groups {
		bytes := g.bytes()
		node := d.nodeOf(ctx, g)
		t := open[node]
		if node == nil || t == nil || t.bytes+bytes > MaxBatchBytes {
			t = &train{node: node}
			open[node], trains = t, append(trains, t)
		}
		t.groups, t.bytes = append(t.groups, g), t.bytes+bytes
	}
	return trains
}

// nodeOf is where the runs of the group may travel to together with others; those
// that wait to be confirmed may not.
func (d *doing) nodeOf(ctx context.Context, g *group) *redis.Client {
	if d.verb.durable.Asked() {
		return nil
	}
	return d.q.conn.Single(ctx, d.layout.Keys()[g.run.shard].Meta)
}

func (d *doing) runTrain(ctx context.Context, t *train) error {
	if d.mayCoalesce(ctx, t) {
		return d.coalesce(ctx, t)
	}
	return d.drive(ctx, t)
}

// drive sends one run of each group after the other, each for as many calls as one
// script may take, until all calls were looked at or ctx ends.
func (d *doing) drive(ctx context.Context, t *train) error {
	left := slices.Clone(t.groups)
	for len(left) > 0 && ctx.Err() == nil {
		d.runTogether(ctx, t.node, left)
		left = slices.DeleteFunc(left, func(g *group) bool { return len(g.calls) == 0 })
	}
	return t.err()
}

func (t *train) err() (all error) {
	for _, g := range t.groups {
		all = errors.Join(all, g.err)
	}
	return all
}

func (g *group) bytes() (sum int) {
	for _, c := range g.calls {
		sum += callBytes + len(c.asked.stored)
	}
	return sum
}

// batch are the calls for the next script.
func (g *group) batch() []*call {
	bytes, tags := 0, 0
	for i, c := range g.calls[:min(g.most, len(g.calls))] {
		bytes, tags = bytes+len(c.asked.stored), tags+c.asked.tags
		if i > 0 && (bytes > MaxBatchBytes || tags > mostTags) {
			return g.calls[:i]
		}
	}
	return g.calls[:min(g.most, len(g.calls))]
}

// took notes what a script has left of its batch of n. Where it has left all, the
// next round asks again.
func (g *group) took(n, most int, left []*call, err error) {
	g.err = errors.Join(g.err, err)
	switch g.calls = g.calls[n:]; len(left) {
	case 0:
		g.most = min(2*g.most, most)
	case n:
		g.calls = nil
	default: // It takes no more now.
		g.most, g.calls = n-len(left), append(left, g.calls...)
	}
}
