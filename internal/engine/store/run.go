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
	// most is how many messages one script takes, so that it blocks Redis for at
	// most 5 ms, see BenchmarkLongestScript.
	most    int
	durable Durability
	keys    func(keys.Shard) []string
	// head are the arguments before the messages.
	head func(*run) []any
	// each appends the arguments of one message.
	each func([]any, *params) []any
	// storedLast is set if the stored messages come after the other arguments of all messages.
	storedLast bool
	// asks is set if a run changes something only in the last home, so that it
	// does not matter whether an earlier visit happened.
	asks bool
	// gonettl is set if a run names that key of the tombstones, too.
	gonettl bool
	// alone is set if the head belongs to these calls only, so that others may not share the run.
	alone bool
	// ends is set if the script ends messages: after the head it gets the limits of the
	// history.
	ends bool
	// pinned is set if all runs must name the epoch of the first, or epoch, if not
	// empty, because a change or a loss ends the caller's right.
	pinned bool
	epoch  string
	// within, unless zero, is the instant after which no run may take effect; a
	// run that may have happened is then not repeated.
	within time.Time
}

// kind is what calls must have in common to share a run of a script.
type kind struct {
	shard  int
	last   bool   // the shard is the last home of the messages
	traces traces // see there
	second bool   // an earlier one may have happened
	start  *start // of the calls, for second runs
}

// run is one run of a verb's script for some calls, and its answer.
type run struct {
	kind
	conn.Trip

	layout      *Layout
	topics      string // the topics that the callers may touch, see [WithTopics]
	calls       []*call
	turn        int // how many runs of its kind leave before it
	bytes       int // of the calls and of what they store
	storedBytes int // of these, what is stored
	tags        int

	server    *clock.Clock // of the shard
	startMs   int64        // by it
	sentMs    int64
	span      string    // in which it may take effect, by that clock
	oldMs     int64     // tombstones that expired before may be removed
	decidedAt time.Time // when the run can no longer happen
	missing   error     // why its effect is not durable
	relative  bool      // some of the messages are due after a delay
	history   string    // the shard's limits, if the verb ends messages and the queue keeps a history
}

const (
	// mostArgs limits the arguments of a script for each message.
	mostArgs = 6
	// callBytes is a call's size in a pipeline, without what it stores.
	callBytes = 256
)

// runsOf makes the runs for the calls of parcels to one place: as few as possible per
// kind, with the calls in their order. The first runs of all kinds come first.
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

// add adds the call to the run, unless one script could not take it.
func (r *run) add(c *call, most int) (isAdded bool) {
	stored, tags := r.storedBytes+len(c.params.stored), r.tags+c.params.tags
	if n := len(r.calls); n > 0 && (n >= most || stored > MaxBatchBytes || tags > mostTags) {
		return false
	}
	r.calls, r.storedBytes, r.tags, r.bytes = append(r.calls, c), stored, tags, r.bytes+callBytes+len(c.params.stored)
	r.relative = r.relative || c.params.when.Relative
	return true
}

// number returns the number of the run for the scripts.
func (r *run) number() int {
	switch {
	case r.traces.ofAll && r.traces.isFresh && !r.second:
		return freshRun
	case r.traces.ofAll:
		return tracedRun
	case r.second:
		return anyRun
	}
	return 1
}

// tombstoneMs returns how long what a cancel or reschedule leaves lives.
func (r *run) tombstoneMs() int64 { return max(r.traces.kept, Tombstone).Milliseconds() }

// bound sets the run's span: from now on, for that long, by the server's clock.
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

// spanAndOld is for scripts that remove tombstones.
func (r *run) spanAndOld() string { return r.span + " " + strconv.FormatInt(r.oldMs, 10) }

// expired returns the instant of a server's clock before which expired tombstones may be
// removed. After the clock was set, none may be for as long as a tombstone lives.
func expired(server *clock.Clock) int64 {
	if !server.IsSteady(Tombstone) {
		return 0
	}
	return server.FloorMs()
}

// prepare makes the command.
func (r *run) prepare(v *verb) {
	k := r.layout.Keys()[r.shard]
	r.Script, r.Keys = v.script, v.keys(k)
	if v.gonettl && r.traces.kept > 0 {
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

// readReply passes the result of the run to each call.
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

// read passes the script's answer to each call.
func (r *run) read(v *verb, reply *scripts.Reply) {
	for i, c := range r.calls {
		code := Code(reply.Int(2 + 2*i))
		switch {
		case !r.last && (code == free || code == NotFound):
			if code == free && reply.Int(3+2*i) != 0 {
				c.params.mark = markDue
			}
			c.notHere()
		case code == NotLooked:
			c.pass.isLeft = true
		default:
			c.read(code, reply, 3+2*i, r.missing)
		}
		if reply.Err != nil { // The reply is not valid for the remaining calls, either.
			rest := *r
			rest.calls = r.calls[i:]
			rest.failed(v, reply.Err)
			return
		}
	}
}

// isStuck reports whether the run has not advanced some of its calls.
func (r *run) isStuck() bool {
	return slices.ContainsFunc(r.calls, func(c *call) bool { return c.state != answered && !c.pass.hasMoved })
}

// failed handles an error of the run, which says whether the run may have happened. If so, it
// may still happen until decidedAt.
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
	default: // A run that only asks has changed nothing.
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

// notRun records that the run certainly did not happen; fail also ends the calls.
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
