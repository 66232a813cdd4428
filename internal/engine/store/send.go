package store

import (
	"context"
	"math/bits"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/internal/engine/store/conn"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

const (
	// mostParcels is how many parcels of one caller are under way at once.
	mostParcels = 8
	// mostCoalesced is how many messages of one parcel may travel with those of others:
	// more fill their scripts well enough.
	mostCoalesced = 64
	// tracks is how many parcels may be under way to a node at once, each for other shards:
	// Redis works on one while the client makes the next. As many calls share a script as
	// with a single track.
	tracks = 4
)

// parcel is runs that travel to one node in one pipeline; or a single one, where there
// is no such node, or it waits to be confirmed.
type parcel struct {
	verb     *verb
	node     *redis.Client
	runs     []*run
	calls    int // of the runs
	bytes    int
	isSecond bool // one of the runs is: it has a start of its own
	deadline time.Time
}

// send sends the runs of a pass, and has each call learn what becomes of its own. Those of
// one node travel together.
func (q *core) send(ctx context.Context, v *verb, runs []*run) {
	parcels := q.pack(ctx, v, runs)
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

// pack puts the runs of a node into one parcel, up to as many bytes as one script may have.
func (q *core) pack(ctx context.Context, v *verb, runs []*run) (parcels []*parcel) {
	deadline, _ := ctx.Deadline()
	open := map[*redis.Client]*parcel{}
	for _, r := range runs {
		var node *redis.Client
		if !v.durable.Asked() {
			node = q.conn.Single(ctx, r.layout.Keys()[r.shard].Meta)
		}
		p := open[node]
		if node == nil || p == nil || p.bytes+r.bytes > MaxBatchBytes {
			p = &parcel{verb: v, node: node, deadline: deadline}
			open[node], parcels = p, append(parcels, p)
		}
		p.runs, p.calls, p.bytes = append(p.runs, r), p.calls+len(r.calls), p.bytes+r.bytes
		p.isSecond = p.isSecond || r.second
	}
	return parcels
}

// line is what parcels must have in common that travel together.
type line struct {
	script  *scripts.Script
	durable Durability
	epoch   string
	topics  string // of the callers
	node    *redis.Client
	track   int // of the node; where there is none, each shard has its own
	hurry   int // how much time they have, as a power of two; 0 is enough for a run
}

// coalescer has parcels of concurrent callers travel together: while one of a node's track
// is under way, those that come wait, and become one. A lone caller waits for nobody, and a
// node that hangs keeps none but its own callers.
//
// They share the runs only: what these do not answer, each caller goes on with by itself.
type coalescer struct {
	lines conn.Lines[line, *parcel]
}

// WithCoalescing has concurrent calls of few messages share runs, and returns the
// queue. It is called before the queue is used.
func (q *Queue) WithCoalescing() *Queue {
	q.coalescer = &coalescer{}
	return q
}

func (q *core) sendParcel(ctx context.Context, p *parcel) {
	v, first := p.verb, p.runs[0] // One track may carry what is of others, too.
	if q.coalescer == nil || v.pinned || v.alone || !v.within.IsZero() || p.isSecond || p.calls > mostCoalesced {
		q.deliver(ctx, p)
		return
	}
	at := line{script: v.script, durable: v.durable, epoch: first.layout.Epoch, topics: first.topics, node: p.node, track: first.shard % tracks}
	most := MaxBatch
	if p.node == nil {
		at.track, most = first.shard, v.most
	}
	if left := time.Until(p.deadline); left < q.conn.Timeout() { // So nobody's run is cut to less than half of its time.
		at.hurry = bits.Len64(uint64(max(left, 1)))
	}
	// Once they have left, they end with the parcel, though ctx may end before.
	err := q.coalescer.lines.Do(ctx, at, p, p.calls, most, func(all []*parcel) { q.deliverAll(ctx, all) })
	if err != nil {
		for _, r := range p.runs {
			r.notRun(err)
		}
	}
}

// deliverAll delivers what several callers have, calls of a kind by one run, within the
// time that each of them has, and no more bytes at once than one script may have.
func (q *core) deliverAll(ctx context.Context, all []*parcel) {
	if len(all) == 1 {
		q.deliver(ctx, all[0])
		return
	}
	first, last := all[0], map[kind]*run{}
	deadline := first.deadline
	var runs []*run
	for _, p := range all {
		if p.deadline.Before(deadline) {
			deadline = p.deadline
		}
		for _, r := range p.runs {
			for _, c := range r.calls {
				if last[r.kind] == nil || !last[r.kind].add(c, p.verb.most) {
					last[r.kind] = &run{kind: r.kind, layout: r.layout, topics: r.topics}
					runs = append(runs, last[r.kind])
					last[r.kind].add(c, 1)
				}
			}
		}
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancel()
	for _, p := range q.pack(ctx, first.verb, runs) {
		q.deliver(ctx, p)
	}
}

// deliver sends the runs of a parcel.
func (q *core) deliver(ctx context.Context, p *parcel) {
	if p.verb.durable.Asked() {
		q.confirmRun(ctx, p.verb, p.runs[0])
		return
	}
	var sent []*run
	var trips []*conn.Trip
	for _, r := range p.runs {
		if q.prepare(ctx, p.verb, r) {
			sent, trips = append(sent, r), append(trips, &r.Trip)
		}
	}
	q.conn.RunTogether(ctx, p.node, trips)
	for _, r := range sent {
		r.answered(p.verb)
	}
}

// confirmRun sends a run, and waits until what it has done is durable.
func (q *core) confirmRun(ctx context.Context, v *verb, r *run) {
	meta := r.layout.Keys()[r.shard].Meta
	place, err := q.conn.Enter(ctx, v.durable, meta)
	if err != nil {
		r.failed(v, err)
		return
	}
	defer place.Leave()
	if q.prepare(ctx, v, r) { // Only now: the gate may have taken long.
		r.Cmd, r.missing, r.Err = q.conn.RunConfirmed(ctx, place, v.durable, r.second, meta, r.Script, r.Keys, r.Args...)
		r.answered(v)
	}
}

// prepare makes the run one that may happen from now on. It may have to ask for the time.
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

// window is how long from now on the run may take effect.
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
