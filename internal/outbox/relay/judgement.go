package relay

import (
	"maps"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// verdicts are the updates of rows, all of which are written in one transaction. They belong
// to one goroutine.
type verdicts struct {
	updates          table.Updates
	applied          []announcement
	settled, waiting int
	blocked          []blockedRow
	err              error // one of the reasons why rows wait, if any is known
}

// announcement is what the observer gets after the commit.
type announcement struct {
	table.Identity
	verb   table.Verb
	state  table.State
	reason string
}

func newVerdicts() verdicts { return verdicts{updates: table.Updates{}} }

// set records the update of a row, and the reason if it waits.
func (v *verdicts) set(r *table.Row, c table.Update, err error) {
	switch {
	case c.Lives:
		v.settled++
	case c.State == table.StatePending:
		v.wait(1, err)
	default:
		v.settled++
		v.applied = append(v.applied, announcement{r.Identity, r.Verb, c.State, c.Reason})
	}
	v.updates.Set(r.Number, c)
}

// block records that a row waits for another message of its id to leave.
func (v *verdicts) block(r *table.Row, why string) {
	v.blocked = append(v.blocked, blockedRow{r.Identity, r.Number, why})
}

// recordPut records what Redis has answered to a message that was put.
func (v *verdicts) recordPut(r *table.Row, answer store.Answer) {
	if why := inTheWay(answer); why != "" {
		v.block(r, why)
		return
	}
	v.set(r, judgePut(answer), answer.Err)
}

// refuse records that a row can never be stored.
func (v *verdicts) refuse(r *table.Row, why error) { v.set(r, refusal(why).op, nil) }

// wait notes that rows must wait.
func (v *verdicts) wait(rows int, err error) {
	v.waiting += rows
	if err != nil {
		v.err = err
	}
}

// join adds the verdicts on other rows.
func (v *verdicts) join(o *verdicts) {
	maps.Copy(v.updates, o.updates)
	v.applied, v.blocked = append(v.applied, o.applied...), append(v.blocked, o.blocked...)
	v.settled += o.settled
	v.wait(o.waiting, o.err)
}

// outcome is the result of the batch with these verdicts.
func (v *verdicts) outcome(last *table.Row, full bool) outcome {
	return outcome{settled: v.settled, waiting: v.waiting, blocked: len(v.blocked), last: last.Cursor(), full: full}
}

// question is what a judgement needs answered: whether a message fits the queue, or what Redis
// answers to an operation. It is a record.
type question struct {
	row *table.Row // nil: nothing, all is judged
	fit bool
	// The question to Redis. With ifUnknown, and if Redis does not know the message, also when the
	// queue was made there.
	operation store.Operation
	ifUnknown bool
}

// judgement is the machine that judges the operations of one identity in order, until one must
// wait. It asks Redis only what the table does not tell.
//
//	next ──► question: does the message fit? ──► fits ──────────┐
//	  ▲      question: Redis, do this ──► answered: judge ──────┤
//	  └───────── the next operation, on what this one has left ◄┘
//
// Redis gets the token in force of the operation's row, so it touches no other message of that id.
// If the transaction is lost, the next judgement of the same rows gets the same answers.
type judgement struct {
	verdicts
	outlook outlook
	group   *table.Group
	rest    []*table.Row // the operations that are not judged
	isFit   bool         // the first of these
}

func newJudgement(o outlook, g *table.Group) *judgement {
	return &judgement{verdicts: newVerdicts(), outlook: o, group: g, rest: g.Operations}
}

// next judges operations that need no answer, and returns the question about the next one.
func (j *judgement) next() question {
	for len(j.rest) > 0 {
		op := j.rest[0]
		if op.IsUnnoted() { // It came since the others were noted.
			j.end(1, nil)
			break
		}
		if err := op.CheckOperation(); err != nil {
			j.decide(refusal(err), nil)
			continue
		}
		if op.Verb == table.VerbReplace && !j.isFit {
			return question{row: op, fit: true}
		}
		if v, ok := judgeByTable(j.group, op); ok {
			j.decide(v, nil)
			continue
		}
		q := question{row: op, operation: store.Operation{ID: op.ID, Key: op.Key, Token: op.Token, Target: j.group.Head.Token}}
		_, q.ifUnknown = j.outlook.maybeOut(j.group.Head)
		return q
	}
	return question{}
}

// fits takes the reason why a message could never be stored, so that it replaces none; nil if
// it could.
func (j *judgement) fits(why error) {
	if j.isFit = why == nil; !j.isFit {
		j.decide(refusal(why), nil)
	}
}

// takeAnswer takes the answer of Redis. Its data of the queue goes back to since; zero if that is
// unknown or does not matter.
func (j *judgement) takeAnswer(answer store.Answer, since time.Time) {
	op, head := j.rest[0], j.group.Head
	maybe, ifOlder := j.outlook.maybeOut(head)
	j.decide(judge(situation{
		verb: op.Verb, marked: head.Maybe, maybe: maybe || ifOlder && j.outlook.made(head).Before(since),
		op: table.Move{Token: op.Token, DueMs: op.DueMs, Revision: op.Number},
	}, answer), answer.Err)
}

// end leaves the operations that are not judged.
func (j *judgement) end(waiting int, err error) {
	j.wait(waiting, err)
	j.rest = nil
}

// decide takes the verdict on the first operation.
func (j *judgement) decide(v verdict, err error) {
	op := j.rest[0]
	j.rest, j.isFit = j.rest[1:], false
	if v.inTheWay != "" {
		j.block(op, v.inTheWay)
		j.rest = nil
		return
	}
	j.set(op, v.op, err)
	j.setHead(v.head)
	switch {
	case v.stop:
		j.rest = nil
	case v.op.Lives:
		op.Verb = table.VerbSchedule
		j.group.Head = op
	}
}

// setHead records the update of the message's row, also for the next operation.
func (j *judgement) setHead(c table.Update) {
	head := j.group.Head
	if c.IsZero() || head == nil {
		return
	}
	if c.Move != nil {
		head.Rename(c.Move.Token)
		head.DueMs, head.Revision = c.Move.DueMs, c.Move.Revision
		head.Maybe = head.Maybe || c.Move.Maybe
	}
	j.updates.Set(head.Number, c)
	if c.State != table.StatePending && c.State != head.State {
		j.applied = append(j.applied, announcement{head.Identity, head.Verb, c.State, c.Reason})
	}
	head.State = c.State
	if c.State > table.StateStored {
		how := c.End()
		j.group.Head, j.group.Last, j.group.Ended[head.Number] = nil, table.StatePending, how
		if how == table.StatePublished || how == table.StateCancelled {
			j.group.Last = how
		}
	}
}
