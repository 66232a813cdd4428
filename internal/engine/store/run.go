package store

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store/clock"
	"github.com/delaybridge/delaybridge/internal/engine/store/conn"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/store/rediserr"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// verb is what differs between the producers' scripts.
type verb struct {
	name   string
	script *scripts.Script
	// most is how many messages one script takes, so that it blocks Redis for 5 ms
	// at the most, see BenchmarkLongestScript.
	most    int
	durable Durability
	keys    func(keys.Shard) []string
	// head are the arguments before the messages.
	head func(*run) []any
	// each appends the arguments of one message.
	each func([]any, *params) []any
	// storedLast is set where what is stored stands behind the arguments of all.
	storedLast bool
	// asks is set where a run changes nothing but in the last home, so that it
	// does not matter whether it happened.
	asks bool
	// gonettl is set where a run that is kept names that key of the tombstones, too.
	gonettl bool
	// alone is set where the head is of these calls only, so that others' may not travel with them.
	alone bool
	// ends is set where the script takes messages out: behind the head it is told what the
	// queue remembers of them.
	ends bool
	// pinned is set where no run may name another epoch than the first did, or than
	// epoch, unless that is empty: a change, or a loss, ends the caller's right.
	pinned bool
	epoch  string
	// within, unless zero, is when no run may take effect any more; then none is
	// repeated that may have happened.
	within time.Time
}

// kind is what calls have in common that may share a run of a script.
type kind struct {
	shard  int
	last   bool   // the shard is the last home of the messages
	isOnce bool   // what it creates leaves a tombstone, and is not created again: see Once
	second bool   // an earlier one may have happened
	start  *start // of the calls, for second runs
}

// run is one run of a verb's script for some calls, and its answer.
type run struct {
	kind
	conn.Trip

	layout *Layout
	topics string // those that the callers may touch, see [WithTopics]
	calls  []*call
	turn   int // how many runs of the kind leave before it
	bytes  int // of what the calls store, and of themselves
	stored int // of these, what is stored
	tags   int

	server    *clock.Clock // of the shard
	startMs   int64        // by it
	sentMs    int64
	span      string    // in which it may happen, by that clock
	oldMs     int64     // tombstones that have expired by then may go
	decidedAt time.Time // when the run can no longer happen
	missing   error     // for its effect to be durable
	relative  bool      // some of the messages are due after a delay
	history   string    // the shard's limits, where the verb ends messages and the queue keeps a history
}

const (
	// mostArgs is how many arguments a script takes for each message, at the most.
	mostArgs = 6
	// callBytes is what a call counts for in a pipeline, beside what it stores.
	callBytes = 256
)

// runsOf are the runs for the calls of parcels to one place: for those of a kind as few as
// may be, in their order; first the first ones of all kinds.
func runsOf(parcels []*parcel) (runs []*run) {
	last := map[kind]*run{}
	for _, p := range parcels {
		for _, c := range p.calls {
			k, turn := c.kind(), 0
			if r := last[k]; r != nil {
				if r.add(c, p.caller.most) {
					continue
				}
				turn = r.turn + 1
			}
			last[k] = &run{kind: k, layout: p.layout, topics: p.caller.topics, turn: turn}
			last[k].add(c, p.caller.most)
			runs = append(runs, last[k])
		}
	}
	slices.SortStableFunc(runs, func(a, b *run) int { return a.turn - b.turn })
	return runs
}

// add has the run serve that call, too, unless it would be too much for one script.
func (r *run) add(c *call, most int) (isAdded bool) {
	stored, tags := r.stored+len(c.params.stored), r.tags+c.params.tags
	if n := len(r.calls); n > 0 && (n >= most || stored > MaxBatchBytes || tags > mostTags) {
		return false
	}
	r.calls, r.stored, r.tags, r.bytes = append(r.calls, c), stored, tags, r.bytes+callBytes+len(c.params.stored)
	r.relative = r.relative || c.params.when.Relative
	return true
}

// number is the run as the scripts count them.
func (r *run) number() int {
	if r.second {
		return 2
	}
	return 1
}

// bound makes the run one that may happen from now on, for that long, in a server of
// that clock.
func (r *run) bound(server *clock.Clock, window time.Duration) {
	r.server, r.sentMs, r.decidedAt = server, server.FloorMs(), time.Now().Add(window)
	notAfter := r.sentMs + clock.AtLeast(window).Milliseconds() - 1
	if r.second {
		r.startMs = r.start.by(server)
	}
	for _, c := range r.calls {
		if c.endsMs > 0 {
			notAfter = min(notAfter, c.endsMs-1)
		}
	}
	r.oldMs = expired(server)
	r.span = strconv.FormatInt(r.sentMs-clock.Ahead.Milliseconds(), 10) + " " + strconv.FormatInt(notAfter, 10)
}

// spanAndOld is for scripts that let tombstones go.
func (r *run) spanAndOld() string { return r.span + " " + strconv.FormatInt(r.oldMs, 10) }

// expired is the instant of a server's clock until which tombstones that have expired may go:
// none may for as long as they live after that clock was set.
func expired(server *clock.Clock) int64 {
	if !server.IsSteady(Tombstone) {
		return 0
	}
	return server.FloorMs()
}

// prepare makes what is sent.
func (r *run) prepare(v *verb) {
	k := r.layout.Keys()[r.shard]
	r.Script, r.Keys = v.script, v.keys(k)
	if v.gonettl && r.isOnce {
		r.Keys = append(r.Keys, k.GoneTTL)
	}
	if v.ends {
		r.Keys, r.history = r.layout.WithHistory(k, r.Keys)
	}
	r.Args = slices.Grow(v.head(r), 1+mostArgs*len(r.calls))
	if v.ends {
		r.Args = append(r.Args, r.history)
	}
	for _, c := range r.calls {
		r.Args = v.each(r.Args, &c.params)
	}
	if v.storedLast {
		for _, c := range r.calls {
			r.Args = append(r.Args, c.params.stored)
		}
	}
}

// readReply tells each call what is known of the run.
func (r *run) readReply(v *verb) {
	if r.Err != nil {
		r.server.Doubt()
		r.failed(v, r.Err)
		return
	}
	reply := scripts.NewReply(r.Cmd)
	r.server.Learn(reply.Int(1), r.sentMs)
	switch status := reply.Int(0); {
	case reply.Err != nil:
		r.failed(v, reply.Err)
	case status == statusReload:
		r.notRun(r.layout.Refused(reply, r.shard))
	case status == statusMissed:
		r.missed(reply.Int(1))
	case status == statusFull:
		r.fail(errBudget)
	case len(reply.Values) == 3: // All were created, at that instant.
		accepted := reply.Int(2)
		for _, c := range r.calls {
			c.created(accepted, r.missing)
		}
	default:
		r.read(v, reply)
	}
}

// read takes the script's answer for each message.
func (r *run) read(v *verb, reply *scripts.Reply) {
	for i, c := range r.calls {
		code := Code(reply.Int(2 + 2*i))
		switch {
		case !r.last && (code == free || code == NotFound):
			c.notHere()
		case code == NotLooked:
			c.pass.isLeft = true
		default:
			c.read(code, reply, 3+2*i, r.missing)
		}
		if reply.Err != nil { // It says nothing of those that follow, either.
			rest := *r
			rest.calls = r.calls[i:]
			rest.failed(v, reply.Err)
			return
		}
	}
}

// isStuck reports whether a call of the run has not got on by it.
func (r *run) isStuck() bool {
	return slices.ContainsFunc(r.calls, func(c *call) bool { return c.state != answered && !c.pass.hasMoved })
}

// failed handles an error of the run, which tells whether it may have happened. If so, it may
// yet happen until decidedAt.
func (r *run) failed(v *verb, err error) {
	err = fmt.Errorf("%s: %w", v.name, err)
	switch class := rediserr.Classify(err); {
	case errors.Is(err, ErrNoFsync):
		r.fail(err)
	case class == rediserr.Full:
		r.fail(fmt.Errorf("%w: %w", ErrFull, err))
	case class == rediserr.Fatal:
		r.fail(fmt.Errorf("%w: %w", ErrUnavailable, err))
	case class == rediserr.Lost && (r.last || !v.asks):
		for _, c := range r.calls {
			c.noReply(err, r.decidedAt, r.sentMs)
		}
	default: // Or it has changed nothing.
		r.notRun(err)
	}
}

// missed records that the run came outside its span, at that instant of Redis' clock. A further
// run gets another span, unless the traces of earlier runs may have expired by then.
func (r *run) missed(nowMs int64) {
	for _, c := range r.calls {
		if c.isForgotten = c.endsMs > 0 && nowMs >= c.endsMs; c.isForgotten {
			c.fail(errMissed)
		} else {
			c.notRun(errMissed)
		}
	}
}

// notRun records that the run certainly did not happen; fail, that no other will be sent either.
func (r *run) notRun(err error) {
	for _, c := range r.calls {
		c.notRun(err)
	}
}

func (r *run) fail(err error) {
	for _, c := range r.calls {
		c.fail(err)
	}
}
