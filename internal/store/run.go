package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/store/clock"
	"github.com/delaybridge/delaybridge/internal/store/conn"
	"github.com/delaybridge/delaybridge/internal/store/keys"
	"github.com/delaybridge/delaybridge/internal/store/rediserr"
	"github.com/delaybridge/delaybridge/internal/store/scripts"
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
	// pinned is set where no run may name another epoch than the first did, or than
	// epoch, unless that is empty: a change, or a loss, ends the caller's right.
	pinned bool
	epoch  string
	// within, unless zero, is when no run may take effect any more; then none is
	// repeated that may have happened.
	within time.Time
}

// mostArgs is how many arguments a script takes for each message, at the most.
const mostArgs = 5

// run is one run of a script. Calls that have the same one may share it.
type run struct {
	shard  int
	epoch  string
	second bool   // an earlier one may have happened
	last   bool   // the shard is the last home of the messages
	start  *start // of the calls, for second runs

	startMs, notAfter int64 // by the clock of the shard's server
	relative          bool  // some of the messages are due after a delay
}

// number is the run as the scripts count them.
func (r *run) number() int {
	if r.second {
		return 2
	}
	return 1
}

// runOnce sends a run for one batch, and takes what it tells of each call. It
// returns those that the script has left for the next one.
func (d *doing) runOnce(ctx context.Context, r run, batch []*call) (left []*call, err error) {
	k := d.layout.Keys()[r.shard]
	var place *conn.Place
	if d.verb.durable.Asked() {
		if place, err = d.q.conn.Enter(ctx, d.verb.durable, k.Meta); err != nil {
			return nil, d.failed(batch, err, time.Time{})
		}
		defer place.Leave()
	}
	server, err := d.q.clocks.Of(ctx, k.Meta)
	if err != nil {
		return nil, d.failed(batch, err, time.Time{})
	}
	// Only now: the gate may have taken long.
	window, sentMs := d.window(ctx, &r), server.FloorMs()
	settled := time.Now().Add(window)
	r.notAfter = sentMs + clock.AtLeast(window).Milliseconds() - 1
	if r.second {
		r.startMs = r.start.by(server)
	}
	answer, missing, err := d.send(ctx, k, place, r, d.verb.args(r, batch))
	if err != nil {
		server.Doubt()
		if d.verb.asks && !r.last && rediserr.Classify(err) == rediserr.Lost {
			return nil, d.notRun(batch, err) // It has changed nothing.
		}
		return nil, d.failed(batch, err, settled)
	}
	server.Learn(answer.Int(1), sentMs)
	return d.take(r, batch, answer, missing, settled)
}

// args are what the script is told.
func (v *verb) args(r run, batch []*call) []any {
	for _, c := range batch {
		r.relative = r.relative || c.asked.when.Relative
	}
	args := slices.Grow(v.head(r), mostArgs*len(batch))
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

// send runs the script, and says what is missing for its effect to be durable.
func (d *doing) send(ctx context.Context, k keys.Shard, p *conn.Place, r run, args []any) (answer *scripts.Reply, missing, err error) {
	var cmd *redis.Cmd
	if v := d.verb; p == nil {
		cmd, err = d.q.conn.Run(ctx, v.script, v.keys(k), args...)
	} else {
		cmd, missing, err = d.q.conn.RunConfirmed(ctx, p, v.durable, r.second, k.Meta, v.script, v.keys(k), args...)
	}
	if err != nil {
		return nil, nil, err
	}
	return scripts.NewReply(cmd), missing, nil
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
