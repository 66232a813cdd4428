package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
	"github.com/delaybridge/delaybridge/internal/engine/store/rediserr"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

// The pauses between the rounds of a call: a run that did certainly not happen is
// repeated after the first, doubled each time up to the longest.
const (
	firstPause = 5 * time.Millisecond
	longPause  = 250 * time.Millisecond
)

// doing is one verb for several messages, until each has its answer. See state
// for what may become of each.
type doing struct {
	q      *core
	verb   *verb
	calls  []*call // without those that are answered
	start  *start  // of those that do not continue earlier ones
	layout *Layout // of this round
	epoch  string  // that all runs must name, where the verb is pinned
	topics string  // those that the caller may touch, see WithTopics
}

// do runs the verb for all calls until each has an answer or ctx ends.
func (q *core) do(ctx context.Context, v *verb, calls []*call) {
	if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > MaxCall {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, MaxCall)
		defer cancel()
	}
	d := doing{q: q, verb: v, calls: calls, topics: topicsOf(ctx)}
	d.begin()
	pause := wait.Backoff{Initial: firstPause, Limit: longPause}
	var refused time.Time // since when a fence refuses the runs
	var cause error       // why there is more than one round
	for ctx.Err() == nil {
		before := len(d.calls)
		err := d.round(ctx)
		if err != nil && layout.IsRefusal(err) {
			if refused.IsZero() {
				refused = time.Now()
			}
			q.layouts.Reconcile(ctx, err, refused)
		}
		d.dropAnswered()
		if len(d.calls) == 0 {
			d.tell(cause)
			return
		}
		cause = rediserr.Telling(cause, err)
		if len(d.calls) < before {
			pause.Reset()
		}
		settled := d.settled()
		if !v.within.IsZero() && !settled.IsZero() {
			break
		}
		if !wait.Sleep(ctx, max(pause.Next(), time.Until(settled))) || endsSoon(ctx) {
			break
		}
	}
	d.giveUp(ctx)
}

// Repeated is calls made together that have their answers only after Redis had failed,
// or refused, some of their runs.
type Repeated struct {
	Verb  string        // "schedule", "replace", "cancel", "reschedule"
	Took  time.Duration // from the calls' start
	Cause error         // of the last run that failed
}

// WithRepeated has that function told of calls that were repeated, and returns the
// queue. It is called before the queue is used; the function must not block.
func (q *Queue) WithRepeated(tell func(Repeated)) *Queue {
	q.repeated = tell
	return q
}

// tell tells of calls that are answered at last.
func (d *doing) tell(cause error) {
	if cause != nil && d.q.repeated != nil {
		d.q.repeated(Repeated{Verb: d.verb.name, Took: time.Since(d.start.at), Cause: cause})
	}
}

// begin gives calls that do not continue earlier ones their start.
func (d *doing) begin() {
	d.epoch = d.verb.epoch
	d.start = &start{queue: d.q.keys.Name, verb: d.verb.name, at: time.Now()}
	for _, c := range d.calls {
		if c.start == nil {
			c.start = d.start
		}
	}
}

// endsSoon reports whether a further run would hardly be answered in time, so
// that it could only turn what is known into what is not.
func endsSoon(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) < longPause
}

// settled is when the last run that may yet happen no longer can, zero where
// none may have.
func (d *doing) settled() (last time.Time) {
	for _, c := range d.calls {
		if c.state == maybeRan && !c.settled.Before(last) {
			last = c.settled
		}
	}
	return last
}

// giveUp ends the calls that have no answer when ctx ends. It waits until what
// has not happened never will: at the longest for the rest of a run's timeout,
// and not past ctx' deadline.
func (d *doing) giveUp(ctx context.Context) {
	wait.Sleep(context.WithoutCancel(ctx), time.Until(d.settled()))
	err := ctx.Err()
	if err == nil {
		err = context.DeadlineExceeded // It ends soon.
	}
	for _, c := range d.calls {
		c.giveUp(err)
	}
}

func (d *doing) dropAnswered() {
	isAnswered := func(c *call) bool { return c.state == answered }
	if !slices.ContainsFunc(d.calls, isAnswered) {
		return
	}
	var rest []*call // The list is the caller's, too.
	for _, c := range d.calls {
		if !isAnswered(c) {
			rest = append(rest, c)
		}
	}
	d.calls = rest
}

// round visits the homes of the messages one after the other, oldest first,
// until a run fails or nobody has got further.
func (d *doing) round(ctx context.Context) error {
	layout, err := d.q.Layout(ctx)
	if err != nil {
		return d.noLayout(err)
	}
	d.layout = layout
	if d.epoch == "" {
		d.epoch = layout.Epoch
	}
	if mine := &d.q.clocks.Queue; d.start.clock == nil && mine.Known() {
		d.start.clock, d.start.ms = mine, mine.FloorMs()
	}
	d.place(layout)
	for {
		d.dropAnswered()
		before := d.stages()
		if err := d.runAll(ctx); err != nil || d.stages() == before || ctx.Err() != nil {
			return err
		}
	}
}

// place gives the calls the homes of their messages, or ends them.
func (d *doing) place(layout *Layout) {
	homes := make([]int, 0, len(d.calls))
	for _, c := range d.calls {
		if c.visit.layout != layout {
			first := len(homes)
			homes = layout.AppendHomes(homes, c.asked.id, c.asked.key)
			c.visit = visit{layout: layout, homes: homes[first:]}
		}
		switch {
		case d.verb.pinned && layout.Epoch != d.epoch:
			c.refused(ErrReload)
		case c.kept != nil && c.kept.again && layout.Epoch != c.kept.epoch:
			c.refused(errOnceMoved)
		case c.state == maybeRan && time.Since(c.start.at) > repeatable:
			c.finish(Answer{Err: ErrForgotten})
		}
	}
}

// noLayout takes that the layout could not be loaded: no run happened.
func (d *doing) noLayout(err error) error {
	if !errors.Is(err, ErrNoLayout) && rediserr.Classify(err) != rediserr.Fatal {
		return d.notRun(d.calls, err)
	}
	for _, c := range d.calls {
		c.refused(Unavailable(err))
	}
	return err
}

func (d *doing) stages() (sum int) {
	for _, c := range d.calls {
		sum += c.visit.stage
	}
	return sum
}
