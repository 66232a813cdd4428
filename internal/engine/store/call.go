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

// state is what is known of a call.
//
//	          a run did certainly not happen
//	             ┌─────┐
//	             │     ▼
//	newCall ──► unsent ─────── Redis answers, or refuses for good ──────► answered
//	             │      └───── ctx ends: ErrUnavailable ────────────────►  ▲ ▲ ▲
//	a reply is   │                                                         │ │ │
//	lost         ▼                                                         │ │ │
//	Earlier ──► maybeRan ───── Redis answers a second run ─────────────────┘ │ │
//	             │     ▲ └──── ctx ends: ErrUnknown, once decided ───────────┘ │
//	             └─────┘  └─── Redis refuses for good: ErrUnknown; or it is ───┘
//	          a reply is       too long ago that it began: ErrForgotten
//	          lost again, or
//	          a run did not happen
//
// A run whose reply is lost may have happened, may yet happen, or not. So each
// run carries a span by the clock of its shard's server, outside of which the
// script changes nothing. The span ends with the caller's deadline, and with the
// timeout of a run at the latest. After that instant, decidedAt, no run can still
// take effect. Only then does the next run leave, which says that it is a second
// run; and only then is ErrUnknown answered. So a lookup tells the truth.
//
// That clock may be set. The span begins when the run was sent: where the clock was
// set back since, a late run misses it. The span of a second run ends before what the
// first may have left can have expired: where the clock was set forward since, the
// answer is ErrUnknown, and to its repetition ErrForgotten. Who misses the span is told the
// time, and sends the run with another one. See Known limits in docs/ARCHITECTURE.md for
// what is left.
type state int

const (
	// unsent: no run has happened, nor will one of those that were sent.
	unsent state = iota
	// maybeRan: a run may have happened; until decidedAt one may happen yet.
	maybeRan
	// answered: answer is set.
	answered
)

// call is one message's part of a producer's call: what is asked, what is known
// of it, and the answer.
type call struct {
	params params
	start  *start
	visit  visit
	once   *onceCall // of the calls of a Once; nil of others

	pass        pass
	state       state
	decidedAt   time.Time // of maybeRan; zero: long ago
	ranAt       []int     // the homes where runs may have happened
	endsMs      int64     // by Redis' clock, when traces of runs that may have happened may be gone; 0: of none
	isForgotten bool      // they may be
	cause       error     // why it is not answered yet
	answer      Answer
}

// params is what the scripts get of a message.
type params struct {
	id, key string
	when    When
	token   string
	stored  []byte // for schedule, replace and put
	tags    int    // how many it has

	target  string // for the operations of outbox rows
	life    string // for jobs: the token that must be in force
	mark    string // for put and peek, as put.lua takes it
	untilMs string // for put: how long the tombstone lives that it leaves, as the script takes it
}

// When is a due time: an instant, a delay from the moment at which Redis accepts
// the message, or how far it is from the message's own due time. Milliseconds.
type When struct {
	Relative, FromOwn bool
	Ms                int64
}

// String is the form that the scripts take.
func (w When) String() string {
	if w.Relative {
		return "+" + strconv.FormatInt(w.Ms, 10)
	}
	if w.FromOwn {
		return "b" + strconv.FormatInt(w.Ms, 10)
	}
	return strconv.FormatInt(w.Ms, 10)
}

// visit is how far a call has got through the homes of its message.
type visit struct {
	layout *Layout // for which the rest counts
	homes  []int
	stage  int // which home is next: all before it have no such message
}

// pass is what the last pass of runs has told of a call that it has not answered.
type pass struct {
	failure  error // why its run has not
	hasMoved bool  // the message is not in the home that was visited
	isLeft   bool  // the script did not get to it
}

// start is when, and as what, calls began that were made together.
type start struct {
	queue, verb string
	at          time.Time
	clock       *clock.Clock // of the server that ms counts by; nil where none was known
	ms          int64
}

// by is the instant of the start by a server's clock, or a little before it. Where that was
// set back since, it is what it would have been.
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

// read ends the call with the script's answer, whose detail is at that place of
// the reply. missing is why what the run has done is not durable, if it has.
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

// created ends a call whose message was created, due as asked, at that instant of
// Redis' clock. missing is as for read.
func (c *call) created(acceptedMs int64, missing error) {
	ms := c.params.when.Ms
	if c.params.when.Relative {
		ms += acceptedMs
	}
	c.finish(Answer{Code: Created, DueAt: time.UnixMilli(ms), Missing: missing, NotDurable: missing != nil})
}

// notRun records that a run certainly did not happen.
func (c *call) notRun(err error) { c.pass.failure, c.cause = err, rediserr.Telling(c.cause, err) }

// noReply records that a run may have happened, or may yet happen until decidedAt, and when it
// was sent, by Redis' clock.
func (c *call) noReply(err error, decidedAt time.Time, sentMs int64) {
	c.notRun(err)
	c.state, c.decidedAt, c.ranAt = maybeRan, decidedAt, append(c.ranAt, c.home())
	if ends := sentMs + repeatable.Milliseconds(); c.once == nil && (c.endsMs == 0 || ends < c.endsMs) {
		c.endsMs = ends
	}
}

// traced puts in front of the homes those where an earlier run may have happened, and left its
// trace: the layout may have changed since, and so their order, and in another home the next
// message of the id may be.
func (c *call) traced(homes []int) []int {
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

// notHere records that the home that was visited does not have the message: the next one is tried.
func (c *call) notHere() { c.visit.stage, c.pass.hasMoved = c.visit.stage+1, true }

// home is the one that its next run visits.
func (c *call) home() int { return c.visit.homes[c.visit.stage] }

// kind is what its next run must have in common with other calls'.
func (c *call) kind() kind {
	k := kind{shard: c.home(), last: c.visit.stage == len(c.visit.homes)-1, isOnce: c.once != nil}
	if c.state == maybeRan {
		k.second, k.start = true, c.start
	}
	return k
}

// fail ends the call: its last run had no effect, and no other will be sent. If an earlier run
// may have happened, the outcome is unknown.
func (c *call) fail(err error) {
	if c.state == maybeRan {
		err = c.unknown(err)
	}
	c.finish(Answer{Err: err})
}

// giveUp ends a call whose time is over, after decidedAt.
func (c *call) giveUp(err error) {
	if c.cause == nil {
		c.cause = err
	}
	if c.state == unsent {
		c.cause = fmt.Errorf("%w: %w", ErrUnavailable, c.cause)
	}
	c.fail(c.cause)
}

// unknown is the error of a call whose effect cannot be told.
func (c *call) unknown(cause error) error {
	return &UnknownError{Cause: cause, Call: UnknownCall{
		Queue: c.start.queue, Verb: c.start.verb, ID: c.params.id, Key: c.params.key, token: c.params.token, start: c.start,
		ranAt: c.ranAt, endsMs: c.endsMs, isForgotten: c.isForgotten, once: c.once, ended: time.Now(),
	}}
}

// UnknownCall is a call that ended with [ErrUnknown]. A call that names it is a
// further run of it: it finds what the earlier runs have done, and creates only
// messages that are marked maybe published.
type UnknownCall struct {
	// ID and Key are the message's identity; Queue and Verb ("schedule", "replace",
	// "cancel" or "reschedule") tell what was to become of it.
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

// RestUntilAgain waits until a call that ended then may be repeated, also if ctx has ended: a
// caller that repeats calls which fail at once must not spin.
func RestUntilAgain(ctx context.Context, ended time.Time) {
	wait.Sleep(context.WithoutCancel(ctx), time.Until(ended.Add(betweenRepetitions)))
}

// Again is asked before an earlier call is repeated, and rests. Its error is [ErrForgotten];
// a call of a [Once] is remembered for as long as that is.
func (e *UnknownCall) Again(ctx context.Context) error {
	if e.once == nil && (e.isForgotten || time.Since(e.start.at) > repeatable) {
		return ErrForgotten
	}
	RestUntilAgain(ctx, e.ended)
	return nil
}

// Still is the error of a repetition of which no run happened: what the earlier
// runs have done is as unknown as before. Without an earlier call it is err.
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

// repeatable is for how long after its start a call may have further runs: a
// cancel or replace that came since has left a tombstone, which lives longer.
const repeatable = Tombstone - time.Second

// newCall is a call under that token, or a further run of an earlier one, unless
// that is nil.
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

// newTokens returns unused tokens: random for the batch, counted within it.
func newTokens(n int) []string {
	var raw [12]byte
	_, _ = rand.Read(raw[:9]) // It never fails.
	text := make([]byte, 0, n*message.TokenLength)
	for i := range n {
		raw[9], raw[10], raw[11] = byte(i>>16), byte(i>>8), byte(i)
		text = base64.RawURLEncoding.AppendEncode(text, raw[:])
	}
	all, tokens := string(text), make([]string, n)
	for i := range tokens {
		tokens[i] = all[i*message.TokenLength : (i+1)*message.TokenLength]
	}
	return tokens
}
