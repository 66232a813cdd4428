package store

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/clock"
	"github.com/delaybridge/delaybridge/internal/engine/store/rediserr"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

// state is what is known of a call. A new one is unsent; one that continues an earlier call may have run.
//
//	its state | its run                            → its state | its answer
//	*         | was answered                       → answered  | that
//	*         | did not happen                     → as before | none
//	*         | has no reply and only asked        → as before | none
//	*         | has no reply                       → maybeRan  | none
//	unsent    | met a full Redis                   → answered  | ErrFull
//	unsent    | was refused for good               → answered  | ErrUnavailable
//	maybeRan  | met a full Redis                   → answered  | ErrUnknown
//	maybeRan  | was refused for good               → answered  | ErrUnknown
//	*         | missed its span                    → as before | none
//	maybeRan  | missed it when traces were gone    → answered  | ErrUnknown
//	unsent    | is not made again as ctx has ended → answered  | ErrUnavailable
//	maybeRan  | is not made again as ctx has ended → answered  | ErrUnknown
//
// A run whose reply is lost may have happened, may yet happen, or not. So each
// run carries a span by the clock of its shard's server, outside of which the
// script changes nothing. The span ends with the caller's deadline, and with the
// timeout of a run at the latest. After that instant, decidedAt, no run can still
// take effect, so a lookup is accurate. Only then does the next run leave, which
// says that it is a second run; and only then does the call answer ErrUnknown.
//
// That clock may be set. The span begins when the run was sent, so if the clock was set
// back since, a late run misses it. The span of a second run ends before any trace of the
// first can have expired: if the clock was set forward since, the answer is ErrUnknown, and
// ErrForgotten to its repetition. A run that misses its span returns the time, and is sent
// again with another span. Known limits in docs/ARCHITECTURE.md has what remains.
type state int

const (
	// unsent: no run has happened, and none that was sent still can.
	unsent state = iota
	// maybeRan: a run may have happened; until decidedAt one may happen yet.
	maybeRan
	// answered: answer is set.
	answered
)

// call is one message's part of a producer's call: the request, what is known
// of it, and the answer.
type call struct {
	params params
	start  *start
	visit  visit
	once   *onceCall // of the calls of a Once; nil of others

	pass        pass
	state       state
	decidedAt   time.Time // for maybeRan; zero: long ago
	ranAt       []int     // the homes where runs may have happened
	endsMs      int64     // by Redis' clock, when the traces of earlier runs may be gone; 0: no earlier runs
	isForgotten bool      // those traces may be gone
	cause       error     // why it has no answer yet
	answer      Answer
}

// params are a message's arguments for the scripts.
type params struct {
	id, key string
	when    When
	token   string
	stored  []byte // for schedule, replace and put
	tags    int    // how many it has

	target  string // for the operations of outbox rows
	life    string // for jobs: the token that must be in force
	mark    string // for put and peek, as put.lua takes it
	untilMs string // for put: how long its tombstone lives, as the script takes it
}

// When is a due time: an instant, a delay from the moment at which Redis accepts
// the message, or how far it is from the message's own due time. Milliseconds.
type When struct {
	Relative, FromOwn bool
	Ms                int64
	// MaxWait, unless 0, bounds a delay with which a message replaces another one: from the acceptance
	// of the first of them.
	MaxWait int64
}

// String is the form that the scripts take.
func (w When) String() string {
	if w.Relative {
		text := "+" + strconv.FormatInt(w.Ms, 10)
		if w.MaxWait > 0 {
			text += "<" + strconv.FormatInt(w.MaxWait, 10)
		}
		return text
	}
	if w.FromOwn {
		return "b" + strconv.FormatInt(w.Ms, 10)
	}
	return strconv.FormatInt(w.Ms, 10)
}

// visit is the progress of a call through the homes of its message.
type visit struct {
	layout *Layout // to which the rest belongs
	homes  []int
	stage  int // which home is next: all before it have no such message
	// isSought: if one of the homes has a trace of the call, it is the first one.
	isSought bool
}

// pass is what a call without an answer has learned from the last pass of runs.
type pass struct {
	failure  error // why its run failed
	hasMoved bool  // the message is not in the home that was visited
	isLeft   bool  // the script did not get to it
}

// start is when calls that were made together began.
type start struct {
	queue, verb string
	at          time.Time
	clock       *clock.Clock // of the server by which ms counts; nil if none was known
	ms          int64
}

// by returns the start by a server's clock, or a little before it, corrected if that clock
// was set back since.
func (s *start) by(c *clock.Clock) int64 {
	passed := time.Since(s.at)
	least := c.FloorMs() - clock.AtMost(passed).Milliseconds() - 1
	if s.clock == c && least > s.ms-clock.Ahead.Milliseconds() {
		return s.ms
	}
	return least
}

// finish ends the call.
func (c *call) finish(answer Answer) { c.state, c.answer = answered, answer }

var errAnother = errors.New("another message of that id is there")

// read ends the call with the script's answer, whose detail is at that index of
// the reply. missing says why the run's change, if any, is not durable.
func (c *call) read(code Code, r *scripts.Reply, detail int, missing error) {
	a := Answer{Code: code}
	switch code {
	case Unknown:
		a.Err = c.unknown(errAnother)
	case Dead:
		a.Reason = r.Text(detail)
	default:
		if ms := r.Int(detail); ms != 0 {
			a.DueAt = time.UnixMilli(ms)
		}
	}
	a.Missing, a.NotDurable = missing, missing != nil && code != InFlight && code != NotFound && code != OtherTopic
	if r.Err == nil {
		c.finish(a)
	}
}

// created ends a call whose message was created, with the requested due time, at
// that instant of Redis' clock. missing is as for read.
func (c *call) created(acceptedMs int64, missing error) {
	ms := c.params.when.Ms
	if c.params.when.Relative {
		ms += acceptedMs
	}
	c.finish(Answer{Code: Created, DueAt: time.UnixMilli(ms), Missing: missing, NotDurable: missing != nil})
}

// notRun records that a run certainly did not happen.
func (c *call) notRun(err error) { c.pass.failure, c.cause = err, rediserr.Telling(c.cause, err) }

// noReply records that a run may have happened, or may still happen until decidedAt, and when
// it was sent, by Redis' clock.
func (c *call) noReply(err error, decidedAt time.Time, sentMs int64) {
	c.notRun(err)
	c.state, c.decidedAt, c.ranAt = maybeRan, decidedAt, append(c.ranAt, c.home())
	if ends := sentMs + repeatable.Milliseconds(); c.once == nil && (c.endsMs == 0 || ends < c.endsMs) {
		c.endsMs = ends
	}
}

// traced moves to the front the homes where an earlier run may have left its trace: a change
// of the layout may have changed their order, and another home may have the next message of
// the id. Calls of a name look for their trace, see findTraces.
func (c *call) traced(homes []int) []int {
	if c.leavesTrace() {
		return homes
	}
	var first []int
	for _, home := range c.ranAt {
		if home != homes[0] && slices.Contains(homes, home) && !slices.Contains(first, home) {
			first = append(first, home)
		}
	}
	if first == nil {
		return homes
	}
	return append(first, homes...)
}

// notHere records that the visited home does not have the message, so the next one is tried.
func (c *call) notHere() { c.visit.stage, c.pass.hasMoved = c.visit.stage+1, true }

// home returns the home that its next run visits.
func (c *call) home() int { return c.visit.homes[c.visit.stage] }

// kind returns what other calls must share to travel in its next run.
func (c *call) kind() kind {
	k := kind{shard: c.home(), last: c.visit.stage == len(c.visit.homes)-1}
	if c.once != nil {
		k.traces = c.once.traces
	}
	if c.state == maybeRan {
		k.second, k.start = true, c.start
	}
	return k
}

// fail ends the call: its last run had no effect, and no further one will be sent. If an
// earlier run may have happened, the outcome is unknown.
func (c *call) fail(err error) {
	if c.state == maybeRan {
		err = c.unknown(err)
	}
	c.finish(Answer{Err: err})
}

// giveUp ends a call whose time is over and whose decidedAt has passed.
func (c *call) giveUp(err error) {
	if c.cause == nil {
		c.cause = err
	}
	if c.state == unsent {
		c.cause = fmt.Errorf("%w: %w", ErrUnavailable, c.cause)
	}
	c.fail(c.cause)
}

// unknown is the error of a call whose effect is not known.
func (c *call) unknown(cause error) error {
	return &UnknownError{Cause: cause, Call: UnknownCall{
		Queue: c.start.queue, Verb: c.start.verb, ID: c.params.id, Key: c.params.key, token: c.params.token, start: c.start,
		ranAt: c.ranAt, endsMs: c.endsMs, isForgotten: c.isForgotten, once: c.once, ended: time.Now(),
	}}
}

// UnknownCall is a call that ended with [ErrUnknown]. A call that names it
// continues it: it finds what the earlier runs have done, and marks any message
// that it creates as maybe published.
type UnknownCall struct {
	// ID and Key are the message's identity, Queue and Verb ("schedule", "replace",
	// "cancel" or "reschedule") the operation.
	Queue, Verb, ID, Key string

	token       string
	start       *start
	ranAt       []int     // see call
	endsMs      int64     // likewise
	isForgotten bool      // by Redis' clock
	once        *onceCall // of the calls of a Once; nil of others
	ended       time.Time // when the error was made
}

// betweenRepetitions is the least time from the end of a call to its repetition.
const betweenRepetitions = 100 * time.Millisecond

// RestUntilAgain waits until a call that ended then may be repeated, even if ctx has ended: a
// caller that repeats calls which fail at once must not spin.
func RestUntilAgain(ctx context.Context, ended time.Time) {
	wait.Sleep(context.WithoutCancel(ctx), time.Until(ended.Add(betweenRepetitions)))
}

// Again must be called before an earlier call is repeated; it waits until that is allowed.
// Its error is [ErrForgotten]; a call of a [Once] is remembered as long as the Once.
func (e *UnknownCall) Again(ctx context.Context) error {
	if e.once == nil && (e.isForgotten || time.Since(e.start.at) > repeatable) {
		return ErrForgotten
	}
	RestUntilAgain(ctx, e.ended)
	return nil
}

// Still returns the error of a repetition of which no run happened: the result of
// the earlier runs is as unknown as before. Without an earlier call it returns err.
func (e *UnknownCall) Still(err error) error {
	if e == nil || e.once != nil && !e.once.isRepeat {
		return err
	}
	again := *e
	again.ended = time.Now()
	return &UnknownError{Call: again, Cause: err}
}

// UnknownError is an [ErrUnknown].
type UnknownError struct {
	Call  UnknownCall
	Cause error
}

func (e *UnknownError) Error() string { return ErrUnknown.Error() + ": " + e.Cause.Error() }

// Is makes it an [ErrUnknown] for [errors.Is].
func (e *UnknownError) Is(target error) bool { return target == ErrUnknown }

func (e *UnknownError) Unwrap() error { return e.Cause }

// repeatable is how long after its start a call may have further runs. A
// tombstone that a cancel or replace has left meanwhile lives longer.
const repeatable = Tombstone - time.Second

// newCall returns a call under that token, or, if e is not nil, a continuation
// of the earlier call.
func newCall(id, key, token string, e *UnknownCall) *call {
	c := &call{params: params{id: id, key: key, token: token}}
	if e == nil {
		return c
	}
	c.start, c.params.token, c.ranAt, c.endsMs, c.once = e.start, e.token, slices.Clip(e.ranAt), e.endsMs, e.once
	if c.once == nil || c.once.isRepeat {
		c.state = maybeRan
	}
	return c
}

// newTokens returns n random tokens, of 96 bits each: whole groups of base64.
func newTokens(n int) []string {
	raw := make([]byte, n*message.TokenLength/4*3)
	_, _ = rand.Read(raw) // It never fails.
	all, tokens := base64.RawURLEncoding.EncodeToString(raw), make([]string, n)
	for i := range tokens {
		tokens[i] = all[i*message.TokenLength : (i+1)*message.TokenLength]
	}
	return tokens
}
