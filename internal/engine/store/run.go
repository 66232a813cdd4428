package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

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
	head func(run) []any
	// each appends the arguments of one message.
	each func([]any, *asked) []any
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

// mostArgs is how many arguments a script takes for each message, at the most.
const mostArgs = 6

// run is one run of a script. Calls that have the same one may share it.
type run struct {
	shard  int
	epoch  string
	second bool   // an earlier one may have happened
	kept   bool   // what it creates leaves a tombstone, and is not created again: see Once
	last   bool   // the shard is the last home of the messages
	start  *start // of the calls, for second runs

	startMs, notAfter int64 // by the clock of the shard's server
	relative, tagged  bool  // some of the messages are due after a delay, or have tags

	topics  string // those that the caller may touch, see [WithTopics]
	history string // the shard's limits, where the verb ends messages and the queue keeps a history
}

// number is the run as the scripts count them.
func (r *run) number() int {
	if r.second {
		return 2
	}
	return 1
}

// trip is one run for one batch, on its way.
type trip struct {
	conn.Trip

	group   *group
	run     run
	batch   []*call
	server  *clock.Clock
	sentMs  int64
	settled time.Time // when the run can no longer happen
	missing error     // for its effect to be durable
}

// runTogether sends one run for a batch of each group, and takes what they tell of
// each call.
func (d *doing) runTogether(ctx context.Context, node *redis.Client, groups []*group) {
	if d.verb.durable.Asked() {
		for _, g := range groups {
			d.runConfirmed(ctx, g)
		}
		return
	}
	trips, sent := make([]*trip, 0, len(groups)), make([]*conn.Trip, 0, len(groups))
	bytes := 0
	for _, g := range groups {
		t := d.newTrip(g)
		for _, c := range t.batch {
			bytes += callBytes + len(c.asked.stored)
		}
		if len(trips) > 0 && bytes > MaxBatchBytes {
			break // They go with the next.
		}
		if err := d.prepare(ctx, t); err != nil {
			d.ended(t, nil, d.failed(t.batch, err, time.Time{}))
			continue
		}
		trips, sent = append(trips, t), append(sent, &t.Trip)
	}
	d.q.conn.RunTogether(ctx, node, sent)
	for _, t := range trips {
		d.answered(t)
	}
}

// runConfirmed sends one run for a batch of the group, and waits until what it has
// done is durable.
func (d *doing) runConfirmed(ctx context.Context, g *group) {
	t := d.newTrip(g)
	meta := d.layout.Keys()[g.run.shard].Meta
	place, err := d.q.conn.Enter(ctx, d.verb.durable, meta)
	if err == nil {
		defer place.Leave()
		err = d.prepare(ctx, t) // Only now: the gate may have taken long.
	}
	if err != nil {
		d.ended(t, nil, d.failed(t.batch, err, time.Time{}))
		return
	}
	t.Cmd, t.missing, t.Err = d.q.conn.RunConfirmed(ctx, place, d.verb.durable, t.run.second, meta, t.Script, t.Keys, t.Args...)
	d.answered(t)
}

func (d *doing) newTrip(g *group) *trip { return &trip{group: g, run: g.run, batch: g.batch()} }

// prepare makes the run one that may happen from now on.
func (d *doing) prepare(ctx context.Context, t *trip) (err error) {
	k := d.layout.Keys()[t.run.shard]
	if t.server, err = d.q.clocks.Of(ctx, k.Meta); err != nil {
		return err
	}
	window := d.window(ctx, &t.run)
	t.sentMs, t.settled = t.server.FloorMs(), time.Now().Add(window)
	t.run.notAfter = t.sentMs + clock.AtLeast(window).Milliseconds() - 1
	if t.run.second {
		t.run.startMs = t.run.start.by(t.server)
	}
	t.Script, t.Keys = d.verb.script, d.verb.keys(k)
	if d.verb.gonettl && t.run.kept {
		t.Keys = append(t.Keys, k.GoneTTL)
	}
	if d.verb.ends {
		t.Keys, t.run.history = d.layout.WithHistory(k, t.Keys)
	}
	t.Args = d.verb.args(t.run, t.batch)
	return nil
}

// answered takes what is known of a run.
func (d *doing) answered(t *trip) {
	if err := t.Err; err != nil {
		t.server.Doubt()
		if d.verb.asks && !t.run.last && rediserr.Classify(err) == rediserr.Lost {
			err = d.notRun(t.batch, err) // It has changed nothing.
		} else {
			err = d.failed(t.batch, err, t.settled)
		}
		d.ended(t, nil, err)
		return
	}
	answer := scripts.NewReply(t.Cmd)
	t.server.Learn(answer.Int(1), t.sentMs)
	left, err := d.take(t.run, t.batch, answer, t.missing, t.settled)
	d.ended(t, left, err)
}

func (d *doing) ended(t *trip, left []*call, err error) {
	t.group.took(len(t.batch), d.verb.most, left, err)
}

// args are what the script is told.
func (v *verb) args(r run, batch []*call) []any {
	for _, c := range batch {
		r.relative, r.tagged = r.relative || c.asked.when.Relative, r.tagged || c.asked.tags > 0
	}
	args := slices.Grow(v.head(r), 1+mostArgs*len(batch))
	if v.ends {
		args = append(args, r.history)
	}
	for _, c := range batch {
		args = v.each(args, &c.asked)
	}
	if v.storedLast {
		for _, c := range batch {
			args = append(args, c.asked.stored)
		}
	}
	return args
}

// window is how long from now on the run may take effect.
func (d *doing) window(ctx context.Context, r *run) time.Duration {
	window := d.q.conn.Timeout()
	if deadline, ok := ctx.Deadline(); ok {
		window = min(window, time.Until(deadline))
	}
	if !d.verb.within.IsZero() {
		window = min(window, time.Until(d.verb.within))
	}
	if r.second {
		window = min(window, time.Until(r.start.at.Add(repeatable)))
	}
	return max(window, 0)
}

// take reads a script's answer.
func (d *doing) take(r run, batch []*call, answer *scripts.Reply, missing error, settled time.Time) (left []*call, err error) {
	status := answer.Int(0)
	switch {
	case answer.Err != nil:
		return nil, d.failed(batch, answer.Err, settled)
	case status == statusReload:
		return nil, d.notRun(batch, d.layout.Refused(answer, r.shard))
	case status == statusExpired:
		return nil, d.notRun(batch, errExpired)
	case status == statusFull:
		for _, c := range batch {
			c.refused(errBudget)
		}
		return nil, errBudget
	}
	if len(answer.Values) == 3 {
		accepted := answer.Int(2)
		for _, c := range batch {
			c.created(accepted, missing)
		}
		return nil, answer.Err
	}
	for i, c := range batch {
		code := Code(answer.Int(2 + 2*i))
		switch {
		case !r.last && (code == free || code == NotFound):
			c.visit.stage++
		case code == NotLooked:
			left = append(left, c)
		case answer.Err == nil:
			c.read(code, answer, 3+2*i, missing)
		}
	}
	return left, answer.Err
}

// failed takes an error of a run, which tells whether it may have happened; if
// so, it may until settled.
func (d *doing) failed(batch []*call, err error, settled time.Time) error {
	err = fmt.Errorf("%s: %w", d.verb.name, err)
	final := err
	switch class := rediserr.Classify(err); {
	case errors.Is(err, ErrNoFsync):
	case class == rediserr.Full:
		final = fmt.Errorf("%w: %w", ErrFull, err)
	case class == rediserr.Fatal:
		final = fmt.Errorf("%w: %w", ErrUnavailable, err)
	case class == rediserr.Lost:
		for _, c := range batch {
			c.lost(err, settled)
		}
		return err
	default:
		return d.notRun(batch, err)
	}
	for _, c := range batch {
		c.refused(final)
	}
	return err
}

// notRun takes that a run did certainly not happen.
func (d *doing) notRun(batch []*call, err error) error {
	for _, c := range batch {
		c.notRun(err)
	}
	return err
}
