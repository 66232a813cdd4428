package relay

import (
	"errors"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// This file has only pure decisions: the updates of rows, given the state of the table and the
// answer of Redis. judge_test.go covers all of them.

// Reasons, for people.
const (
	reasonCopy       = table.ReasonCopy
	reasonForgotten  = "it may have been published before"
	reasonNotInTable = "not in the table"
	reasonLater      = "a later operation came first"
	reasonWasRefused = table.ReasonRefused
	reasonWasEnded   = "the message was cancelled"
	reasonNoBody     = "the dead letter has no body"
	reasonTaken      = "another message of that id was scheduled first"
)

// failure is what a missing answer means for its row.
type failure int

const (
	failureNone    failure = iota
	failureLater           // ask again: Redis will say what has taken place
	failureInvalid         // it can never take place
)

func failureOf(err error) failure {
	invalid := new(message.InvalidError)
	switch {
	case err == nil:
		return failureNone
	case errors.As(err, &invalid):
		return failureInvalid
	default:
		return failureLater // Also any unknown error.
	}
}

// judgePut decides the update of the row of a message that was put into Redis, if no other
// message blocked it.
func judgePut(answer store.Answer) table.Update {
	switch failureOf(answer.Err) {
	case failureLater:
		return table.Update{}
	case failureInvalid:
		return table.Update{State: table.StateRefused, Reason: answer.Err.Error()}
	case failureNone:
	}
	switch answer.Code {
	case store.Created, store.Mine:
		return table.Update{State: table.StateStored}
	case store.EndedPublished:
		return table.Update{State: table.StatePublished}
	case store.EndedCancelled:
		return table.Update{State: table.StateCancelled}
	case store.EndedMaybe:
		return table.Update{State: table.StateCancelled, Reason: reasonCopy, Maybe: true}
	default:
		return table.Update{} // EndedMoved is by a reschedule that is not recorded: it comes again.
	}
}

// situation is what the table says about an operation before Redis is asked.
type situation struct {
	verb table.Verb
	// maybe: a copy may be out of which neither Redis nor the row knows, if Redis has
	// no trace of the message.
	maybe bool
	// marked: the row remembers that a copy may be out, whatever Redis does.
	marked bool
	// op is what a reschedule gives to the message's row.
	op table.Move
}

// verdict has the updates of an operation and of its message's row.
type verdict struct {
	op, head table.Update
	// stop: the operation was not carried out, nor may later ones be.
	stop bool
	// inTheWay is why a replace waits, and so do later ones.
	inTheWay string
}

// refusal is the verdict on an operation that can never be carried out, or must wait until that is
// known.
func refusal(why error) verdict {
	if why == nil {
		return verdict{stop: true}
	}
	return verdict{op: table.Update{State: table.StateRefused, Reason: why.Error()}}
}

// ended is the verdict on an operation whose message is no live row any more:
// Redis need not be asked. The states are those of a message's row.
func ended(v table.Verb, head table.State) verdict {
	switch head {
	case table.StatePublished:
		return verdict{op: table.Update{State: table.StateTooLate}}
	case table.StateCancelled:
		if v == table.VerbCancel {
			return verdict{op: table.Update{State: table.StateCancelled}}
		}
		return verdict{op: table.Update{State: table.StateTooLate, Reason: reasonWasEnded}}
	case table.StateRefused:
		if v == table.VerbCancel {
			return verdict{op: table.Update{State: table.StateCancelled, Reason: reasonWasRefused}}
		}
		return verdict{op: table.Update{State: table.StateTooLate, Reason: reasonWasRefused}}
	case table.StateUnknown:
		return verdict{op: table.Update{State: table.StateUnknown, Reason: reasonForgotten}}
	case table.StatePending, table.StateStored, table.StateTooLate, table.StateSuperseded:
	}
	return verdict{op: table.Update{State: table.StateUnknown, Reason: reasonNotInTable}}
}

// late is the verdict on an operation that a later one has superseded. Only applied operations
// supersede: a reschedule is recorded in its message's row, and a cancel has ended it. One that
// found no message, or was refused, has changed nothing, so an earlier operation whose
// transaction took longer still counts, see docs/model/Overtake.tla.
func late() verdict {
	return verdict{op: table.Update{State: table.StateSuperseded, Reason: reasonLater}}
}

// judgeByTable decides where Redis need not be asked. A replace takes the place of the
// message whose cancel its transaction has seen, or of whichever lives, see
// docs/model/Replace.tla.
func judgeByTable(g *table.Group, op *table.Row) (v verdict, ok bool) {
	switch {
	case op.Verb != table.VerbReplace:
	case g.Head == nil:
		return verdict{op: table.Update{Lives: true}}, true
	case op.Target.Valid && op.Target.Int64 != g.Head.Number:
		return verdict{op: table.Update{State: table.StateRefused, Reason: reasonTaken}}, true
	default:
		return verdict{}, false
	}
	if op.Target.Valid {
		if how, found := g.Ended[op.Target.Int64]; found {
			return ended(op.Verb, how), true
		}
	}
	switch {
	case g.Head == nil && op.Target.Valid:
		return ended(op.Verb, table.StatePending), true // Its row was deleted.
	case g.Head == nil:
		return ended(op.Verb, g.Last), true
	case g.Head.Number > op.Number:
		return ended(op.Verb, table.StatePending), true // A later message under that id.
	case op.Number < g.Head.Revision:
		return late(), true
	default:
		// A row that came between the operation and the one that it saw.
		return late(), op.Target.Valid && op.Target.Int64 != g.Head.Number
	}
}

// judge decides the updates of an operation and of its message's live row, by the
// answer of Redis. Marked means that the row remembers that a copy may be out, doubtful that
// one may be if Redis has no trace of the message.
//
//	operation  | Redis                    | marked | doubtful → the operation is | the message is
//	*          | did not answer           | *      | *        → not carried out  | left
//	*          | refused it for good      | *      | *        → refused          | left
//	cancel     | did it                   | no     | *        → cancelled        | cancelled
//	cancel     | did it                   | yes    | *        → unknown          | cancelled
//	cancel     | did it with a copy out   | *      | *        → unknown          | cancelled
//	reschedule | did it                   | no     | *        → stored           | stored, moved
//	reschedule | did it                   | yes    | *        → unknown          | stored, moved, marked
//	reschedule | did it with a copy out   | *      | *        → unknown          | stored, moved, marked
//	replace    | did it                   | *      | *        → a message        | cancelled
//	replace    | did it with a copy out   | *      | *        → a message        | cancelled
//	replace    | is publishing it         | *      | *        → not carried out  | left
//	*          | is publishing it         | *      | *        → too late         | left
//	replace    | published it             | *      | *        → a message        | published
//	*          | published it             | *      | *        → too late         | published
//	cancel     | cancelled it             | no     | *        → cancelled        | cancelled
//	cancel     | cancelled it             | yes    | *        → unknown          | cancelled
//	cancel     | cancelled with a copy out | *     | *        → unknown          | cancelled, marked
//	reschedule | cancelled it             | *      | *        → too late         | cancelled
//	reschedule | cancelled with a copy out | *     | *        → too late         | cancelled, marked
//	replace    | cancelled it             | *      | *        → a message        | cancelled
//	replace    | cancelled with a copy out | *     | *        → a message        | cancelled, marked
//	cancel     | knows nothing            | *      | no       → cancelled        | cancelled
//	cancel     | knows nothing            | *      | yes      → unknown          | cancelled
//	reschedule | knows nothing            | *      | no       → stored           | moved
//	reschedule | knows nothing            | *      | yes      → unknown          | moved, marked
//	replace    | knows nothing            | *      | *        → a message        | cancelled
//	*          | moved it by a later one  | *      | *        → superseded       | left
//	*          | has a letter without body | *     | *        → refused          | left
//	*          | says anything else       | *      | *        → not carried out  | left
func judge(s situation, answer store.Answer) verdict {
	if s.verb == table.VerbReplace {
		return s.replaced(answer)
	}
	switch failureOf(answer.Err) {
	case failureLater:
		return verdict{stop: true}
	case failureInvalid:
		return verdict{op: table.Update{State: table.StateRefused, Reason: answer.Err.Error()}}
	case failureNone:
	}
	switch answer.Code {
	case store.Done:
		if s.marked {
			return s.done(reasonCopy)
		}
		return s.done("")
	case store.DoneMaybePublished:
		return s.done(reasonCopy)
	case store.InFlight:
		return verdict{op: table.Update{State: table.StateTooLate}}
	case store.EndedPublished:
		return verdict{op: table.Update{State: table.StateTooLate}, head: table.Update{State: table.StatePublished}}
	case store.EndedCancelled, store.EndedMaybe:
		v := ended(s.verb, table.StateCancelled)
		v.head = table.Update{State: table.StateCancelled}
		if answer.Code == store.EndedMaybe {
			s.marked, v.head.Maybe, v.head.Reason = true, true, reasonCopy
		}
		if s.marked && s.verb == table.VerbCancel {
			v.op = table.Update{State: table.StateUnknown, Reason: reasonCopy}
			v.head.Reason = reasonCopy
		}
		return v
	case store.NotFound:
		return s.notFound()
	case store.EndedMoved: // By one after it, whose transaction was lost.
		return late()
	case store.NoBody:
		return verdict{op: table.Update{State: table.StateRefused, Reason: reasonNoBody}}
	default:
		return verdict{stop: true}
	}
}

// replaced: the old message ends as by a cancel, and then the new one lives. While the old one is
// in flight its end is unknown, so the new one waits.
func (s situation) replaced(answer store.Answer) verdict {
	if answer.Err == nil && answer.Code == store.InFlight {
		return verdict{stop: true, inTheWay: inTheWay(answer)}
	}
	s.verb = table.VerbCancel
	v := judge(s, answer)
	if !v.head.IsZero() {
		v.op = table.Update{Lives: true}
	}
	return v
}

// done: Redis did it; copyOut says that the broker may have had it before.
func (s situation) done(copyOut string) verdict {
	if s.verb == table.VerbCancel {
		op := table.Update{State: table.StateCancelled}
		if copyOut != "" {
			op = table.Update{State: table.StateUnknown, Reason: copyOut}
		}
		return verdict{op: op, head: table.Update{State: table.StateCancelled, Reason: copyOut}}
	}
	s.op.Maybe = copyOut != ""
	op := table.Update{State: table.StateStored}
	if copyOut != "" {
		op = table.Update{State: table.StateUnknown, Reason: copyOut}
	}
	return verdict{op: op, head: table.Update{State: table.StateStored, Move: &s.op}}
}

// notFound: Redis has neither the message nor a tombstone. From now on no writer can bring it
// there under the row's old token. Either it had not arrived yet, or Redis has lost it; neither is
// too late.
func (s situation) notFound() verdict {
	unsure := table.Update{State: table.StateUnknown, Reason: reasonForgotten}
	if s.verb == table.VerbCancel {
		if s.maybe {
			return verdict{op: unsure, head: table.Update{State: table.StateCancelled, Reason: reasonForgotten}}
		}
		return verdict{op: table.Update{State: table.StateCancelled}, head: table.Update{State: table.StateCancelled}}
	}
	s.op.Maybe = s.maybe
	v := verdict{op: table.Update{State: table.StateStored}, head: table.Update{Move: &s.op}}
	if s.maybe {
		v.op = unsure
	}
	return v
}
