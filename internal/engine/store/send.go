package store

import (
	"context"
	"math/bits"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/internal/engine/store/conn"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

const (
	// mostParcels limits the parcels of one caller that are under way at once.
	mostParcels = 8
	// mostCoalesced is the largest parcel, in messages, that is sent with others;
	// larger ones fill their scripts well enough.
	mostCoalesced = 64
	// tracks is how many parcels may be under way to a node at once, each for different
	// shards: Redis works on one while the client makes the next. As many calls share a
	// script as with a single track.
	tracks = 4
)

// parcel has the calls of one caller's pass that go to one place.
type parcel struct {
	caller *caller
	layout *Layout
	place
	calls    []*call
	isSecond bool // one of them needs a second run, with a start of its own
	deadline time.Time
}

// place is a node, whose runs go in one pipeline. It is a shard if there is no such node, or
// if the run must be confirmed.
type place struct {
	node  *redis.Client
	shard int
}

// pack makes a parcel for each place to which calls go.
func (q *core) pack(ctx context.Context, c *caller, l *Layout, calls []*call) (parcels []*parcel) {
	deadline, _ := ctx.Deadline()
	open := map[place]*parcel{}
	for _, call := range calls {
		at := place{shard: call.home()}
		if !c.verb.durable.IsSet() {
			at.node = q.conn.Single(ctx, l.Keys()[at.shard].Meta)
		}
		if at.node != nil {
			at.shard = 0
		}
		p := open[at]
		if p == nil {
			p = &parcel{caller: c, layout: l, place: at, deadline: deadline}
			open[at], parcels = p, append(parcels, p)
		}
		p.calls, p.isSecond = append(p.calls, call), p.isSecond || call.state == maybeRan
	}
	return parcels
}

// send sends the parcels of a pass, and passes the results to their calls.
func (q *core) send(ctx context.Context, parcels []*parcel) {
	if len(parcels) == 1 {
		q.sendParcel(ctx, parcels[0])
		return
	}
	var sending errgroup.Group
	sending.SetLimit(mostParcels)
	for _, p := range parcels {
		sending.Go(func() error {
			q.sendParcel(ctx, p)
			return nil
		})
	}
	_ = sending.Wait()
}

// line is what parcels must have in common to be sent together.
type line struct {
	place
	track   int // of the node
	script  *scripts.Script
	durable Durability
	epoch   string
	topics  string // that the callers may touch
	hurry   int    // how little time they have, as a power of two; 0 is enough for a run
}

// coalescer sends parcels of concurrent callers together: those that arrive while one of
// the node's track is under way wait, and become one. A lone caller waits for nobody, and a
// hanging node holds up only its own callers.
//
// They share only the runs; each caller continues by itself with what these do not answer.
type coalescer struct {
	lines conn.Lines[line, *parcel]
}

// WithCoalescing lets concurrent calls of few messages share runs, and returns
// the queue. Call it before the queue is used.
func (q *Queue) WithCoalescing() *Queue {
	q.coalescer = &coalescer{}
	return q
}

func (q *core) sendParcel(ctx context.Context, p *parcel) {
	v := p.caller.verb
	if q.coalescer == nil || v.pinned || v.alone || !v.within.IsZero() || p.isSecond || len(p.calls) > mostCoalesced {
		q.deliver(ctx, []*parcel{p})
		return
	}
	at := line{place: p.place, script: v.script, durable: v.durable, epoch: p.layout.Epoch, topics: p.caller.topics}
	most := v.most
	if p.node != nil {
		at.track, most = p.calls[0].home()%tracks, MaxBatch // A full parcel may use one track for shards of others.
	}
	if left := time.Until(p.deadline); left < q.conn.Timeout() { // So no run loses more than half of its time.
		at.hurry = bits.Len64(uint64(max(left, 1)))
	}
	err := q.coalescer.lines.Do(ctx, at, p, len(p.calls), most, func(all []*parcel) {
		if len(all) == 1 {
			q.deliver(ctx, all)
			return
		}
		// Once sent, they end with the earliest deadline among them, even if ctx ends before.
		first := slices.MinFunc(all, func(a, b *parcel) int { return a.deadline.Compare(b.deadline) })
		together, cancel := context.WithDeadline(context.WithoutCancel(ctx), first.deadline)
		defer cancel()
		q.deliver(together, all)
	})
	if err != nil {
		for _, c := range p.calls {
			c.notRun(err)
		}
	}
}

// deliver runs the calls of parcels to one place, at once at most one run per kind and as
// many bytes as one script may have. If a call has not advanced, later ones wait for their
// callers' next passes, so that a later call for a message does not overtake an earlier one.
func (q *core) deliver(ctx context.Context, parcels []*parcel) {
	v, node := parcels[0].caller.verb, parcels[0].node
	for runs, stuck := runsOf(parcels), false; len(runs) > 0 && !stuck && ctx.Err() == nil; {
		n := 1
		for bytes := runs[0].bytes; node != nil && n < len(runs) && runs[n].turn == runs[0].turn && bytes+runs[n].bytes <= MaxBatchBytes; n++ {
			bytes += runs[n].bytes
		}
		if v.durable.IsSet() {
			q.confirmRun(ctx, v, runs[0])
		} else {
			q.runTogether(ctx, v, node, runs[:n])
		}
		stuck, runs = slices.ContainsFunc(runs[:n], (*run).isStuck), runs[n:]
	}
}

// runTogether sends runs to a node in one pipeline.
func (q *core) runTogether(ctx context.Context, v *verb, node *redis.Client, runs []*run) {
	var sent []*run
	var trips []*conn.Trip
	for _, r := range runs {
		if q.prepare(ctx, v, r) {
			sent, trips = append(sent, r), append(trips, &r.Trip)
		}
	}
	q.conn.RunTogether(ctx, node, trips)
	for _, r := range sent {
		r.readReply(v)
	}
}

// confirmRun sends a run, and waits until its effect is durable.
func (q *core) confirmRun(ctx context.Context, v *verb, r *run) {
	meta := r.layout.Keys()[r.shard].Meta
	place, err := q.conn.Enter(ctx, v.durable, meta)
	if err != nil {
		r.failed(v, err)
		return
	}
	defer place.Leave()
	if q.prepare(ctx, v, r) { // Only now, because the gate may have taken long.
		r.Cmd, r.missing, r.Err = q.conn.RunConfirmed(ctx, place, v.durable, r.second, meta, r.Script, r.Keys, r.Args...)
		r.readReply(v)
	}
}

// prepare sets the run's span, which begins now. It may have to ask for the time.
func (q *core) prepare(ctx context.Context, v *verb, r *run) (ok bool) {
	server, err := q.clocks.Of(ctx, r.layout.Keys()[r.shard].Meta)
	if err != nil {
		r.failed(v, err)
		return false
	}
	r.bound(server, q.window(ctx, v, r))
	r.prepare(v)
	return true
}

// window returns how long from now on the run may take effect.
func (q *core) window(ctx context.Context, v *verb, r *run) time.Duration {
	window := q.conn.Timeout()
	if deadline, ok := ctx.Deadline(); ok {
		window = min(window, time.Until(deadline))
	}
	if !v.within.IsZero() {
		window = min(window, time.Until(v.within))
	}
	if r.second {
		window = min(window, time.Until(r.start.at.Add(repeatable)))
	}
	return max(window, 0)
}
