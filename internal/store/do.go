package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/internal/store/layout"
	"github.com/delaybridge/delaybridge/internal/store/rediserr"
	"github.com/delaybridge/delaybridge/internal/wait"
)

// The pauses between the rounds of a call: a run that did certainly not happen is
// repeated after the first, doubled each time up to the longest.
const (
	firstPause = 5 * time.Millisecond
	longPause  = 250 * time.Millisecond
)

// parallelRuns is how many runs of one call are under way at once.
const parallelRuns = 8

// doing is one verb for several messages, until each has its answer. See state
// for what may become of each.
type doing struct {
	q      *core
	verb   *verb
	calls  []*call // without those that are answered
	start  *start  // of those that do not continue earlier ones
	layout *Layout // of this round
	epoch  string  // that all runs must name, where the verb is pinned
}

// do runs the verb for all calls until each has an answer or ctx ends.
func (q *core) do(ctx context.Context, v *verb, calls []*call) {
	if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > MaxCall {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, MaxCall)
		defer cancel()
	}
	d := doing{q: q, verb: v, calls: calls}
	d.begin()
	pause := wait.Backoff{Initial: firstPause, Limit: longPause}
	var refused time.Time // since when a fence refuses the runs
	for ctx.Err() == nil {
		before := len(d.calls)
		err := d.round(ctx)
		if layout.IsRefusal(err) {
			if refused.IsZero() {
				refused = time.Now()
			}
			q.layouts.Reconcile(ctx, err, refused)
		}
		d.dropAnswered()
		if len(d.calls) == 0 {
			return
		}
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
	var rest []*call
	for _, c := range d.calls {
		if c.state != answered {
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
	for _, c := range d.calls {
		if c.visit.layout != layout {
			c.visit = visit{layout: layout, homes: layout.Homes(c.asked.id, c.asked.key)}
		}
		switch {
		case d.verb.pinned && layout.Epoch != d.epoch:
			c.refused(ErrReload)
		case c.state == maybeRan && time.Since(c.start.at) > repeatable:
			c.refused(errForgotten)
		}
	}
}

// noLayout takes that the layout could not be loaded: no run happened.
func (d *doing) noLayout(err error) error {
	if !errors.Is(err, ErrNoLayout) && rediserr.Classify(err) != rediserr.Fatal {
		return d.notRun(d.calls, err)
	}
	for _, c := range d.calls {
		c.refused(wrapUnavailable(err))
	}
	return err
}

func (d *doing) stages() (sum int) {
	for _, c := range d.calls {
		sum += c.visit.stage
	}
	return sum
}

// runAll runs the script for each group of calls that it can take together.
func (d *doing) runAll(ctx context.Context) error {
	groups := map[run][]*call{}
	for _, c := range d.calls {
		r := run{
			shard: c.visit.homes[c.visit.stage], last: c.visit.stage == len(c.visit.homes)-1, epoch: d.layout.Epoch,
		}
		if c.state == maybeRan {
			r.second, r.start = true, c.start
		}
		groups[r] = append(groups[r], c)
	}
	if len(groups) == 1 {
		for r, calls := range groups {
			return d.runOne(ctx, r, calls)
		}
	}
	var (
		running errgroup.Group
		mu      sync.Mutex
		all     error
	)
	running.SetLimit(parallelRuns)
	for r, calls := range groups {
		running.Go(func() error {
			err := d.runOne(ctx, r, calls)
			mu.Lock()
			defer mu.Unlock()
			all = errors.Join(all, err)
			return nil
		})
	}
	_ = running.Wait()
	return all
}

func (d *doing) runOne(ctx context.Context, r run, calls []*call) error {
	if d.mayCoalesce(ctx, r, calls) {
		return d.coalesce(ctx, r, calls)
	}
	return d.runGroup(ctx, r, calls)
}

// runGroup sends one run after the other, each for as many calls as one script
// may take: fewer, where the last one has left some.
func (d *doing) runGroup(ctx context.Context, r run, calls []*call) (all error) {
	for most := d.verb.most; len(calls) > 0 && ctx.Err() == nil; {
		n := batchOf(calls, most)
		left, err := d.runOnce(ctx, r, calls[:n])
		if len(left) == n {
			return errors.Join(all, err) // The next round asks again.
		}
		all = errors.Join(all, err)
		most = min(2*most, d.verb.most)
		if len(left) > 0 {
			most = n - len(left)
		}
		calls = append(left, calls[n:]...)
	}
	return all
}

// batchOf is how many of the calls, at most, one script may take.
func batchOf(calls []*call, most int) int {
	bytes := 0
	for i, c := range calls[:min(most, len(calls))] {
		bytes += len(c.asked.stored)
		if i > 0 && bytes > MaxBatchBytes {
			return i
		}
	}
	return min(most, len(calls))
}

// wrapUnavailable says that Redis was not reached, unless there is no layout.
func wrapUnavailable(err error) error {
	if errors.Is(err, ErrNoLayout) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
