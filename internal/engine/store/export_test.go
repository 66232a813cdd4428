package store

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/clock"
	"github.com/delaybridge/delaybridge/internal/engine/store/conn"
)

// ForgetFsync has the node asked again whether it can confirm its disk, as one
// that has become primary.
func (q *Queue) ForgetFsync(ctx context.Context) {
	q.conn.ForgetFsync(ctx, q.keys.Layout())
}

// Settled are the entries of the shard's ledger.
func (q *Rows) Settled(ctx context.Context, shard, most int) (all []RowFate, err error) {
	for cursor := uint64(0); ; {
		rows, next, err := q.FatePage(ctx, shard, cursor, most)
		all = append(all, rows...)
		if cursor = next; err != nil || cursor == 0 {
			return all, err
		}
	}
}

// EarlierCall makes schedules, or replaces, that began together now and of which nothing is known.
func (q *Producer) EarlierCall(replace bool) func(id string) *UnknownCall {
	verb := scheduleVerb.name
	if replace {
		verb = replaceVerb.name
	}
	began := &start{queue: q.keys.Name, verb: verb, at: time.Now()}
	return func(id string) *UnknownCall {
		return &UnknownCall{Queue: q.keys.Name, Verb: verb, ID: id, token: newTokens(1)[0], start: began}
	}
}

// Age makes the call one that began so long ago.
func (e *UnknownCall) Age(d time.Duration) { e.start.at = e.start.at.Add(-d) }

// SteadyShard is the door of a shard whose server's clock was not set for long, as far as is known.
func (q *Queue) SteadyShard(number int) *Shard {
	s, at := q.Shard(number), time.Now().Add(-2*Tombstone)
	s.clock.Observe(at.UnixMilli(), at)
	return s
}

// Parts are the scripts of a settlement.
func Parts(s message.Settlement, history bool) (parts []message.Settlement) {
	for {
		b, _ := sortVerdicts(&s, history)
		part := s
		part.Verdicts = slices.Clone(s.Verdicts)
		for _, i := range b.remaining {
			part.Verdicts[i] = message.Verdict{Verb: message.VerbKeep}
		}
		if parts = append(parts, part); !b.isCut {
			return parts
		}
		s = b.rest(&s)
	}
}

// MostMessages is how many messages, slots or entries a script handles at the most;
// those that are not here handle one, or what there is.
var MostMessages = map[string]int{
	"schedule": scheduleVerb.most, "replace": replaceVerb.most, "put": putVerb.most, "cancel": mostChanged, "reschedule": mostChanged,
	"claim": MaxBatch, "settle": MaxBatch, "mark": MaxBatch, "reclaim": MaxBatch, "parked": slotsPage,
	"forget": MaxBatch, "rows": rowsBatch, "remove": removeBatch, "get": 1,
}

// Tracks is how many tracks a node has.
const Tracks = tracks

// InLine is how many callers wait for a run of others.
func (q *Queue) InLine() int { return q.coalescer.lines.Waiting() }

// CancelThese cancels several messages with as few scripts as may be.
func (q *Producer) CancelThese(ctx context.Context, ids ...string) []Answer {
	return q.changeAll(ctx, cancelVerb, When{}, ids)
}

// RescheduleAll reschedules several messages with as few scripts as may be.
func (q *Producer) RescheduleAll(ctx context.Context, when When, ids ...string) []Answer {
	return q.changeAll(ctx, rescheduleVerb, when, ids)
}

func (q *Producer) changeAll(ctx context.Context, v verb, when When, ids []string) []Answer {
	calls := make([]*call, len(ids))
	for i, token := range newTokens(len(ids)) {
		calls[i] = newCall(ids[i], "", token, nil)
		calls[i].params.when = when
	}
	q.do(ctx, &v, calls)
	return answers(calls)
}

// Caller is the machine of a producer's call, and what its driver does, for tests of its
// decisions alone.
type Caller struct{ caller }

// NewCaller makes so many calls, with scripts of most messages at the most.
func NewCaller(calls, most int, began time.Time) *Caller {
	list := make([]*call, calls)
	for i := range list {
		list[i] = newCall(fmt.Sprint("m-", i), "", fmt.Sprint("m-", i), nil)
	}
	c := &Caller{newCaller(&verb{name: "schedule", most: most, asks: true}, list, &start{at: began}, "")}
	c.pause.Random = func() float64 { return 0.5 }
	return c
}

// Answers are those of the calls by their tokens, as far as there are any.
func (c *Caller) Answers() map[string]*Answer {
	all := map[string]*Answer{}
	for _, call := range c.calls {
		if all[call.params.token] = nil; call.state == answered {
			all[call.params.token] = &call.answer
		}
	}
	return all
}

// Run is one of a pass.
type Run struct{ r *run }

// Plan is the pass of that instant.
func (c *Caller) Plan(l *Layout, now time.Time) (runs []Run) { return c.PlanBy(l, &clock.Clock{}, now) }

// PlanBy is Plan with what is known of Redis' clock.
func (c *Caller) PlanBy(l *Layout, queue *clock.Clock, now time.Time) (runs []Run) {
	for _, r := range runsOf([]*parcel{{caller: &c.caller, layout: l, calls: c.plan(l, queue, now)}}) {
		runs = append(runs, Run{r})
	}
	return runs
}

// StartMs is when the calls began, by the clock of the run's server.
func (r Run) StartMs(server *clock.Clock) int64 { return r.r.start.by(server) }

// Next is what follows, GiveUp the end. Settled is when no run can happen any more.
func (c *Caller) Next(now time.Time) (pause time.Duration, more bool) { return c.next(now) }

// GiveUp ends the calls that have no answer.
func (c *Caller) GiveUp() { c.giveUp(nil) }

// Settled is when no run of the calls can happen any more.
func (c *Caller) Settled() time.Time { return c.decidedAt() }

// IsSecond reports whether an earlier run may have happened, IsLast whether it creates.
func (r Run) IsSecond() bool { return r.r.second }

// IsLast reports whether the run is of the last homes of its messages: it creates them.
func (r Run) IsLast() bool { return r.r.last }

// Tokens are those of the run's calls.
func (r Run) Tokens() (tokens []string) {
	for _, c := range r.r.calls {
		tokens = append(tokens, c.params.token)
	}
	return tokens
}

// Bound has the run leave; it may happen within these instants of Redis' clock.
func (r Run) Bound(server *clock.Clock, window time.Duration) (fromMs, toMs int64) {
	r.r.bound(server, window)
	_, _ = fmt.Sscan(r.r.span, &fromMs, &toMs)
	return fromMs, toMs
}

// Hear has the run answered by those values, or by that error.
func (r Run) Hear(err error, values ...any) {
	r.r.Err, r.r.Cmd = err, redis.NewCmd(context.Background())
	r.r.Cmd.SetVal(values)
	r.r.readReply(&verb{name: "cancel"})
}

// Fail has the run fail by that error; it may happen until then.
func (r Run) Fail(err error, settled time.Time) {
	r.r.decidedAt = settled
	r.r.failed(&verb{name: "schedule", asks: true}, err)
}

// Answer has the run answered: each message was created, or is not there, or the script has not got to it.
func (r Run) Answer(left func(token string) bool) {
	for _, c := range r.r.calls {
		switch {
		case left(c.params.token):
			c.pass.isLeft = true
		case r.r.last:
			c.created(0, nil)
		default:
			c.notHere()
		}
	}
}

// Stepped is a producer's call, whose runs and their replies a test lets happen one by one.
type Stepped struct {
	q *core
	caller
	call *call
	run  *run // the last one, whose reply is under way
}

// Step makes a call of schedule, replace or cancel.
func (q *Producer) Step(name string, r *Request) *Stepped {
	v := map[string]verb{scheduleVerb.name: scheduleVerb, replaceVerb.name: replaceVerb, cancelVerb.name: cancelVerb}[name]
	c := newCall(r.Message.ID, r.Message.Key, newTokens(1)[0], nil)
	c.params.when, c.params.stored = r.When, message.Encode(c.params.token, r.Message)
	began := &start{queue: q.keys.Name, verb: name, at: time.Now()}
	return &Stepped{q: q.core, caller: newCaller(&v, []*call{c}, began, ""), call: c}
}

// Token is the call's.
func (s *Stepped) Token() string { return s.call.params.token }

// Run has the next run leave, so the reply of the one before was lost. If it does not arrive, it is lost, too.
func (s *Stepped) Run(ctx context.Context, arrives bool) error {
	s.lose()
	l, err := s.q.Layout(ctx)
	if err != nil {
		return err
	}
	parcels := s.q.pack(ctx, &s.caller, l, s.plan(l, &s.q.clocks.Queue, time.Now()))
	if s.run = runsOf(parcels)[0]; !s.q.prepare(ctx, s.verb, s.run) {
		return s.call.cause
	}
	if arrives {
		s.q.conn.RunTogether(ctx, parcels[0].node, []*conn.Trip{&s.run.Trip})
		return s.run.Err
	}
	s.lose()
	return nil
}

func (s *Stepped) lose() {
	if s.run != nil {
		s.run.Cmd, s.run.Err = nil, os.ErrDeadlineExceeded
		s.hear()
	}
}

func (s *Stepped) hear() {
	s.run.readReply(s.verb)
	s.run = nil
	s.next(time.Now())
}

// Hear has the reply arrive, and returns the call's answer; more is true if it needs a further run. If none is under way, the
// caller's time is over.
func (s *Stepped) Hear() (answer Answer, more bool) {
	if s.run == nil {
		s.giveUp(nil)
	} else {
		s.hear()
	}
	return s.call.answer, s.call.state != answered
}

// IsRefused reports whether a shard has refused the last run, because the layout has changed.
func (s *Stepped) IsRefused() bool { return s.refusal != nil }
