package store

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// How often a run that did certainly not happen is repeated.
const (
	firstPause = 5 * time.Millisecond
	longPause  = 250 * time.Millisecond
)

// call is one message's part of a producer's call: what is asked, which runs
// may have happened, and the answer.
//
// A run whose reply is lost may have happened, may yet happen, or not. So each
// run carries a not-after instant by Redis' clock, past which the script changes
// nothing. Only after that instant the next run leaves, and says that it is a
// second run. Runs that did certainly not happen are repeated as they are.
type call struct {
	id, key string
	when    When
	token   string
	stored  []byte // for schedule, replace and put

	target  string // for the operations of outbox rows, as is
	laterMs int64  // what was scheduled from then on is a later message
	marked  bool   // for put

	layout *Layout // for which stage counts
	homes  []int
	stage  int // which home is next: all before it have no such message

	second   bool
	notAfter int64
	startMs  int64
	cause    error
	done     bool
	answer   Answer
}

// verb is what differs between the producers' scripts.
type verb struct {
	name    string
	script  *script
	durable Durability
	keys    func(shardKeys) []string
	// head are the arguments before the messages.
	head func(r run, first *call) []any
	// each are the arguments of one message.
	each func(*call) []any
	// asks is set where a run changes nothing but in the last home, so that it
	// does not matter whether it happened.
	asks bool
	// within, unless zero, is when no run may take effect any more; then none is
	// repeated that may have happened.
	within time.Time
}

// run is one run of a script for one batch.
type run struct {
	shard    int
	number   int // 1, or 2 where an earlier one may have happened
	last     bool
	epoch    string
	notAfter int64
}

// do runs the verb for all calls until each has an answer or ctx ends.
func (q *Queue) do(ctx context.Context, v *verb, calls []*call) {
	ctx, cancel := context.WithTimeout(ctx, MaxCall)
	defer cancel()
	pending, pause := calls, firstPause
	var since time.Time // the first refusal
	for first := true; ; first = false {
		if err := ctx.Err(); err != nil {
			_ = note(pending, err)
			giveUp(pending)
			return
		}
		if !first && endsSoon(ctx) {
			giveUp(pending)
			return
		}
		layout, err := q.Layout(ctx)
		if err == nil {
			err = q.runHomes(ctx, v, layout, pending)
			if isRefusal(err) {
				if since.IsZero() {
					since = time.Now()
				}
				q.reconcile(ctx, err, since)
			}
		} else {
			noteLayoutError(pending, err)
		}
		before := len(pending)
		pending = unanswered(pending)
		if len(pending) == 0 {
			return
		}
		if !v.within.IsZero() && anySecond(pending) {
			giveUp(pending)
			return
		}
		if len(pending) < before && err == nil {
			pause = firstPause
			if !anySecond(pending) {
				continue // A script left some for the next one.
			}
		}
		if !q.wait(ctx, pending, pause) {
			giveUp(pending)
			return
		}
		pause = min(2*pause, longPause)
	}
}

// endsSoon reports whether a further run would hardly be answered in time, so
// that it could only turn what is known into what is not.
func endsSoon(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) < longPause
}

// runHomes visits the homes of the messages one after the other, oldest first,
// until a run fails or nobody has got further.
func (q *Queue) runHomes(ctx context.Context, v *verb, layout *Layout, pending []*call) error {
	for _, c := range pending {
		if c.layout != layout {
			c.layout, c.homes, c.stage = layout, layout.homes(c.id, c.key), 0
		}
	}
	for {
		before := stages(pending)
		err := q.runAll(ctx, v, layout, pending)
		if err != nil || stages(pending) == before || ctx.Err() != nil {
			return err
		}
		pending = unanswered(pending)
	}
}

func stages(calls []*call) (sum int) {
	for _, c := range calls {
		sum += c.stage
	}
	return sum
}

// runAll runs the script once for each group of pending calls that it can take
// together: one shard, one kind of run, within the limits of a script.
func (q *Queue) runAll(ctx context.Context, v *verb, layout *Layout, pending []*call) error {
	groups := map[run][]*call{}
	var order []run
	nowMs, _ := q.clock.nowMs() // The layout's load has set the clock.
	for _, c := range pending {
		if c.startMs == 0 {
			c.startMs = nowMs
		}
		r := run{shard: c.homes[c.stage], number: 1, last: c.stage == len(c.homes)-1, epoch: layout.Epoch}
		if c.second {
			r.number = 2
		}
		if groups[r] == nil {
			order = append(order, r)
		}
		groups[r] = append(groups[r], c)
	}
	var (
		running errgroup.Group
		mu      sync.Mutex
		all     error
	)
	running.SetLimit(8)
	for _, r := range order {
		running.Go(func() error {
			for batch := range batches(groups[r]) {
				err := q.runOnce(ctx, v, layout, r, batch)
				mu.Lock()
				all = errors.Join(all, err)
				mu.Unlock()
			}
			return nil
		})
	}
	_ = running.Wait()
	return all
}

// batches cuts calls into what one script may take.
func batches(calls []*call) func(yield func([]*call) bool) {
	return func(yield func([]*call) bool) {
		start, bytes := 0, 0
		for i, c := range calls {
			if i > start && (i-start == MaxBatch || bytes+len(c.stored) > MaxBatchBytes) {
				if !yield(calls[start:i]) {
					return
				}
				start, bytes = i, 0
			}
			bytes += len(c.stored)
		}
		yield(calls[start:])
	}
}

// runOnce is one run of the script for one batch.
func (q *Queue) runOnce(ctx context.Context, v *verb, layout *Layout, r run, batch []*call) error {
	k := layout.keys.shards[r.shard]
	var g *gate
	if v.durable.asked() {
		var err error
		if g, err = q.enter(ctx, v.durable, k.meta); err != nil {
			return noteError(batch, 0, fmt.Errorf("%s: %w", v.name, err)) // Nothing was sent.
		}
		defer g.leave()
	}
	nowMs, _ := q.clock.nowMs() // Only now: the gate may have taken long.
	r.notAfter = nowMs + q.timeout.Milliseconds()
	if !v.within.IsZero() {
		r.notAfter = min(r.notAfter, nowMs+time.Until(v.within).Milliseconds())
	}
	args := v.head(r, batch[0])
	for _, c := range batch {
		args = append(args, v.each(c)...)
	}
	answer, missing, err := q.send(ctx, v, k, g, r, args)
	if err != nil {
		err = fmt.Errorf("%s: %w", v.name, err)
		if v.asks && !r.last && classify(err) == classLost {
			return note(batch, err) // It has changed nothing.
		}
		return noteError(batch, r.notAfter, err)
	}
	if v.durable.asked() {
		q.clock.observeLate(answer.int(1), nowMs)
	} else {
		q.clock.observe(answer.int(1))
	}
	switch status := answer.int(0); {
	case answer.bad != nil:
		return noteError(batch, r.notAfter, answer.bad)
	case status == statusReload:
		return note(batch, refused(answer, layout, r.shard))
	case status == statusExpired:
		return note(batch, errExpired)
	}
	for i, c := range batch {
		if code := Code(answer.int(2 + 2*i)); !r.last && (code == free || code == NotFound) {
			c.stage++
			continue
		}
		if c.read(answer, 2+2*i) && missing != nil {
			c.answer.Missing, c.answer.NotDurable = missing, true
		}
	}
	return answer.bad
}

// noteError records what an error tells about the batch's run.
func noteError(batch []*call, notAfter int64, err error) error {
	if errors.Is(err, ErrNoFsync) {
		return finish(batch, err)
	}
	switch classify(err) {
	case classNotRun:
		return note(batch, err)
	case classFull:
		return finish(batch, fmt.Errorf("%w: %w", ErrFull, err))
	case classFatal:
		return finish(batch, fmt.Errorf("%w: %w", ErrUnavailable, err))
	case classLost:
		for _, c := range batch {
			c.second, c.notAfter, c.cause = true, notAfter, err
		}
	}
	return err
}

func note(batch []*call, err error) error {
	for _, c := range batch {
		c.cause = tellingCause(c.cause, err)
	}
	return err
}

// finish ends calls with an error that says that this run did not happen. Where
// an earlier one may have, nobody knows.
func finish(batch []*call, err error) error {
	for _, c := range batch {
		c.done, c.answer.Err = true, err
		if c.second {
			c.answer.Err = fmt.Errorf("%w: %w", ErrUnknown, err)
		}
	}
	return err
}

// noteLayoutError handles a layout that could not be loaded: no run happened.
func noteLayoutError(pending []*call, err error) {
	if errors.Is(err, ErrNoLayout) || classify(err) == classFatal {
		_ = finish(pending, wrapUnavailable(err))
		return
	}
	_ = note(pending, err)
}

func wrapUnavailable(err error) error {
	if errors.Is(err, ErrNoLayout) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// giveUp ends calls that have no answer when ctx ends.
func giveUp(pending []*call) {
	for _, c := range pending {
		c.done = true
		state := ErrUnavailable
		if c.second {
			state = ErrUnknown
		}
		if c.cause == nil {
			c.cause = context.DeadlineExceeded
		}
		c.answer.Err = fmt.Errorf("%w: %w", state, c.cause)
	}
}

// wait pauses before the next runs; those after a lost run wait until it can no
// longer happen. It reports false when ctx ends before.
func (q *Queue) wait(ctx context.Context, pending []*call, pause time.Duration) bool {
	for _, c := range pending {
		if !c.second {
			continue
		}
		nowMs, _ := q.clock.nowMs()
		pause = max(pause, time.Duration(c.notAfter-nowMs+1)*time.Millisecond)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func unanswered(calls []*call) []*call {
	var rest []*call
	for _, c := range calls {
		if !c.done {
			rest = append(rest, c)
		}
	}
	return rest
}

func anySecond(calls []*call) bool {
	for _, c := range calls {
		if c.second {
			return true
		}
	}
	return false
}

// newTokens returns tokens that nobody has used: random for the batch, counted
// within it.
func newTokens(n int) []string {
	var raw [12]byte
	_, _ = rand.Read(raw[:9]) // It never fails.
	tokens := make([]string, n)
	for i := range tokens {
		raw[9], raw[10], raw[11] = byte(i>>16), byte(i>>8), byte(i)
		tokens[i] = base64.RawURLEncoding.EncodeToString(raw[:])
	}
	return tokens
}
