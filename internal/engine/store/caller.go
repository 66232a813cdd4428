package store

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store/clock"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
	"github.com/delaybridge/delaybridge/internal/engine/store/rediserr"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

// The pauses between the passes of a caller after a run that certainly did not
// happen: the first, then doubled each time up to the longest.
const (
	firstPause = 5 * time.Millisecond
	longPause  = 250 * time.Millisecond
)

// caller is the machine that runs one verb for several messages until each has its answer.
// It calls nobody and never waits. The comment of state draws the life of each call.
//
//	plan ──► the calls of a pass ──► send: each learns of its own run ──► next
//	 ▲                                                                     │
//	 ├── at once, where calls have got on: to the next home of their ──────┤
//	 │   messages, or because one script could not take all                │
//	 └── after a pause, where a run has failed ────────────────────────────┤
//	                                            all are answered: the end ◄┘
type caller struct {
	verb  *verb
	calls []*call // without those that are answered
	start *start  // of calls that do not continue earlier ones

	epoch  string // that all runs must name, where the verb is pinned
	topics string // those that the caller may touch, see WithTopics
	most   int    // how many messages the next runs may take

	pause    wait.Backoff
	cause    error     // why there is more than one pass
	refusal  error     // of the last pass: a fence has refused a run
	fencedAt time.Time // since when fences do
}

// do runs the verb for all calls until each has an answer or ctx ends.
func (q *core) do(ctx context.Context, v *verb, calls []*call) {
	if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > MaxCall {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, MaxCall)
		defer cancel()
	}
	c := newCaller(v, calls, &start{queue: q.keys.Name, verb: v.name, at: time.Now()}, topicsOf(ctx))
	for ctx.Err() == nil {
		if layout, err := q.Layout(ctx); err != nil {
			c.noLayout(err)
		} else {
			ready := q.findTraces(ctx, layout, c.plan(layout, &q.clocks.Queue, time.Now()))
			q.send(ctx, q.pack(ctx, &c, layout, ready))
		}
		pause, more := c.next(time.Now())
		if !more {
			q.tell(&c)
			return
		}
		if c.refusal != nil {
			q.layouts.Reconcile(ctx, c.refusal, c.fencedAt)
		}
		if c.hasEnded() || pause > 0 && (!wait.Sleep(ctx, pause) || endsSoon(ctx)) {
			break
		}
	}
	wait.Sleep(context.WithoutCancel(ctx), time.Until(c.decidedAt()))
	c.giveUp(ctx.Err())
}

func newCaller(v *verb, calls []*call, began *start, topics string) caller {
	for _, c := range calls {
		if c.start == nil {
			c.start = began
		}
	}
	return caller{
		verb: v, calls: calls, start: began, epoch: v.epoch, topics: topics, most: v.most,
		pause: wait.Backoff{Initial: firstPause, Limit: longPause},
	}
}

// plan returns the calls of the next pass, in their order. Each visits the next home of its
// message, oldest first.
func (c *caller) plan(l *Layout, queue *clock.Clock, now time.Time) (ready []*call) {
	if c.epoch == "" {
		c.epoch = l.Epoch
	}
	if c.start.clock == nil && queue.IsUsable() {
		c.start.clock, c.start.ms = queue, queue.FloorMs()-clock.AtMost(now.Sub(c.start.at)).Milliseconds()
	}
	homes := make([]int, 0, len(c.calls))
	for _, call := range c.calls {
		call.pass = pass{}
		if call.visit.layout != l {
			first := len(homes)
			homes = l.AppendHomes(homes, call.params.id, call.params.key)
			call.visit = visit{layout: l, homes: call.traced(homes[first:])}
		}
		if c.end(call, now); call.state != answered {
			ready = append(ready, call)
		}
	}
	return ready
}

// end ends a call that must not have a further run.
func (c *caller) end(call *call, now time.Time) {
	switch epoch := call.visit.layout.Epoch; {
	case c.verb.pinned && epoch != c.epoch:
		call.fail(ErrReload)
	case call.once != nil && call.once.isRepeat && epoch != call.once.epoch:
		call.fail(errOnceMoved)
	case call.state == maybeRan && now.Sub(call.start.at) > repeatable:
		call.finish(Answer{Err: ErrForgotten})
	}
}

// noLayout records that the layout could not be loaded: no run happened.
func (c *caller) noLayout(err error) {
	isFinal := errors.Is(err, ErrNoLayout) || rediserr.Classify(err) == rediserr.Fatal
	for _, call := range c.calls {
		if isFinal {
			call.fail(Unavailable(err))
		} else {
			call.notRun(err)
		}
	}
}

// next evaluates a pass and returns the pause before the next one; more is false if all
// calls are answered.
func (c *caller) next(now time.Time) (pause time.Duration, more bool) {
	var left []*call // c.calls may still use the list.
	var failure error
	hasMoved, isLeft := false, false
	c.refusal = nil
	for _, call := range c.calls {
		if call.state == answered {
			hasMoved = true
			continue
		}
		left = append(left, call)
		hasMoved, isLeft = hasMoved || call.pass.hasMoved, isLeft || call.pass.isLeft
		if call.pass.failure != nil {
			failure = rediserr.Telling(failure, call.pass.failure)
		}
		if layout.IsRefusal(call.pass.failure) {
			c.refusal = call.pass.failure
		}
	}
	c.calls = left
	if c.most = min(2*c.most, c.verb.most); isLeft { // The script had to read too much.
		c.most = max(1, c.most/4)
	}
	if hasMoved {
		c.pause.Reset()
	}
	if failure != nil {
		c.cause = rediserr.Telling(c.cause, failure)
	}
	if c.refusal != nil && c.fencedAt.IsZero() {
		c.fencedAt = now
	}
	if len(left) > 0 && (failure != nil || !hasMoved) {
		pause = max(c.pause.Next(), c.decidedAt().Sub(now))
	}
	return pause, len(left) > 0
}

// decidedAt is the instant after which no run of the calls can still take effect; zero if none may have.
func (c *caller) decidedAt() (last time.Time) {
	for _, call := range c.calls {
		if call.state == maybeRan && !call.decidedAt.Before(last) {
			last = call.decidedAt
		}
	}
	return last
}

// hasEnded reports whether no further run may be sent, because one may have happened and the
// verb must not be repeated.
func (c *caller) hasEnded() bool { return !c.verb.within.IsZero() && !c.decidedAt().IsZero() }

// giveUp ends the unanswered calls when their time is over and none of their runs can still
// take effect.
func (c *caller) giveUp(err error) {
	if err == nil {
		err = context.DeadlineExceeded // It ends soon.
	}
	for _, call := range c.calls {
		call.giveUp(err)
	}
}

// endsSoon reports whether a further run would hardly be answered in time: it could only
// make a known outcome unknown.
func endsSoon(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) < longPause
}

// Repetition describes calls, made together, that were answered only after Redis had
// failed or refused some of their runs.
type Repetition struct {
	Verb  string        // "schedule", "replace", "cancel", "reschedule"
	Took  time.Duration // from the calls' start
	Cause error         // of the last run that failed
}

// WithRepetitions sets a function that is called for repeated calls, and returns the
// queue. Set it before the queue is used; the function must not block.
func (q *Queue) WithRepetitions(tell func(Repetition)) *Queue {
	q.onRepetition = tell
	return q
}

// tell reports repeated calls once they are answered.
func (q *core) tell(c *caller) {
	if c.cause != nil && q.onRepetition != nil {
		q.onRepetition(Repetition{Verb: c.verb.name, Took: time.Since(c.start.at), Cause: c.cause})
	}
}

type topicsKey struct{}

// WithTopics returns a ctx whose calls of a producer touch messages of these topics only;
// none means all. The script that makes the change checks the topic, because a message that
// was read earlier may have been replaced. For a message of another topic the answer is
// OtherTopic, and reveals nothing else.
func WithTopics(ctx context.Context, topics []string) context.Context {
	return context.WithValue(ctx, topicsKey{}, topics)
}

// MayTouch reports whether the topic is one of those of [WithTopics].
func MayTouch(ctx context.Context, topic string) bool {
	topics, _ := ctx.Value(topicsKey{}).([]string)
	return len(topics) == 0 || slices.Contains(topics, topic)
}

// packTopics packs a list of topics for the scripts.
func packTopics(topics []string) string {
	var list strings.Builder
	for _, topic := range topics {
		list.WriteString(strconv.Itoa(len(topic)) + ":" + topic)
	}
	return list.String()
}

func topicsOf(ctx context.Context) string {
	topics, _ := ctx.Value(topicsKey{}).([]string)
	return packTopics(topics)
}
