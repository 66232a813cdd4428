package outbox

import (
	"errors"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/store"
)

// This file decides, and does nothing else: what becomes of rows, given what the
// table says and what Redis has answered. judge_test.go goes through all of it.

// Reasons, for people.
const (
	reasonCopy       = "a copy may be out"
	reasonForgotten  = "it may have been published before"
	reasonNotInTable = "not in the table"
	reasonLater      = "a later operation came first"
	reasonWasRefused = "the message was refused"
	reasonWasEnded   = "the message was cancelled"
	reasonNoBody     = "the dead letter has no body"
)

// update is what becomes of one row. The zero value leaves it as it is.
type update struct {
	state  state // 0: stays pending, or what it is
	reason string
	move   *moved
}

// moved is what a reschedule gives to the message's row.
type moved struct {
	token    string
	dueMs    int64
	revision int64
	maybe    bool // a copy may be out
}

func (u update) isZero() bool { return u == update{} }

// end is what later operations are told of a message's row that has ended: of one
// that was cancelled when a copy may have been out, nobody knows.
func (u update) end() state {
	if u.state == stateCancelled && u.reason != "" {
		return stateUnknown
	}
	return u.state
}

// failure says what an answer that is none means for its row.
type failure int

const (
	failureNone    failure = iota
	failureLater           // ask again: what has taken place, Redis will say
	failureInvalid         // it can never take place
)

func failureOf(err error) failure {
	invalid := new(message.InvalidError)
	switch {
	case err == nil || errors.Is(err, store.ErrNotDurable):
		return failureNone
	case errors.As(err, &invalid):
		return failureInvalid
	default:
		return failureLater // Also what nobody thought of.
	}
}

// judgePut decides what becomes of a message's row that was put into Redis, where
// no other message is in the way.
func judgePut(answer store.Answer) update {
	switch failureOf(answer.Err) {
	case failureLater:
		return update{}
	case failureInvalid:
		return update{state: stateRefused, reason: answer.Err.Error()}
	case failureNone:
	}
	switch answer.Code {
	case store.Created, store.Mine:
		return update{state: stateStored}
	case store.EndedPublished:
		return update{state: statePublished}
	case store.EndedCancelled:
		return update{state: stateCancelled}
	default:
		return update{} // EndedMoved is by a reschedule that is not recorded: it comes again.
	}
}

// situation is what the table says about an operation before Redis is asked.
type situation struct {
	verb verb
	// maybe: a copy may be out of which neither Redis nor the row knows, if Redis has
	// no trace of the message.
	maybe bool
	// op is what a reschedule gives to the message's row.
	op moved
}

// verdict is what becomes of an operation and of its message's row.
type verdict struct {
	op, head update
	// stop: the operation was not carried out, nor may later ones be.
	stop bool
}

// ended is the verdict on an operation whose message is no live row any more:
// Redis need not be asked. The states are those of a message's row.
func ended(v verb, head state) verdict {
	switch head {
	case statePublished:
		return verdict{op: update{state: stateTooLate}}
	case stateCancelled:
		if v == verbCancel {
			return verdict{op: update{state: stateCancelled}}
		}
		return verdict{op: update{state: stateTooLate, reason: reasonWasEnded}}
	case stateRefused:
		if v == verbCancel {
			return verdict{op: update{state: stateCancelled, reason: reasonWasRefused}}
		}
		return verdict{op: update{state: stateTooLate, reason: reasonWasRefused}}
	case stateUnknown:
		return verdict{op: update{state: stateUnknown, reason: reasonForgotten}}
	case statePending, stateStored, stateTooLate, stateSuperseded:
	}
	return verdict{op: update{state: stateUnknown, reason: reasonNotInTable}}
}

// late is the verdict on an operation that a later one has overtaken.
func late() verdict {
	return verdict{op: update{state: stateSuperseded, reason: reasonLater}}
}

// judge decides what becomes of an operation and of its message's live row, by the
// answer of Redis.
func judge(s situation, answer store.Answer) verdict {
	switch failureOf(answer.Err) {
	case failureLater:
		return verdict{stop: true}
	case failureInvalid:
		return verdict{op: update{state: stateRefused, reason: answer.Err.Error()}}
	case failureNone:
	}
	switch answer.Code {
	case store.Done:
		return s.done("")
	case store.DoneMaybePublished:
		return s.done(reasonCopy)
	case store.InFlight:
		return verdict{op: update{state: stateTooLate}}
	case store.EndedPublished:
		return verdict{op: update{state: stateTooLate}, head: update{state: statePublished}}
	case store.EndedCancelled:
		v := ended(s.verb, stateCancelled)
		v.head = update{state: stateCancelled}
		return v
	case store.NotFound:
		return s.notFound()
	case store.NoBody:
		return verdict{op: update{state: stateRefused, reason: reasonNoBody}}
	default:
		return verdict{stop: true}
	}
}

// done: Redis did it; copyOut says that the broker may have had it before.
func (s situation) done(copyOut string) verdict {
	if s.verb == verbCancel {
		op := update{state: stateCancelled}
		if copyOut != "" {
			op = update{state: stateUnknown, reason: copyOut}
		}
		return verdict{op: op, head: update{state: stateCancelled, reason: copyOut}}
	}
	s.op.maybe = copyOut != ""
	op := update{state: stateStored}
	if copyOut != "" {
		op = update{state: stateUnknown, reason: copyOut}
	}
	return verdict{op: op, head: update{state: stateStored, move: &s.op}}
}

// notFound: Redis has neither the message nor a trace of it. From now on nobody can
// write it there under the row's old token. It had not come there yet, or Redis has
// lost it: that is not too late.
func (s situation) notFound() verdict {
	unsure := update{state: stateUnknown, reason: reasonForgotten}
	if s.verb == verbCancel {
		if s.maybe {
			return verdict{op: unsure, head: update{state: stateCancelled, reason: reasonForgotten}}
		}
		return verdict{op: update{state: stateCancelled}, head: update{state: stateCancelled}}
	}
	s.op.maybe = s.maybe
	v := verdict{op: update{state: stateStored}, head: update{move: &s.op}}
	if s.maybe {
		v.op = unsure
	}
	return v
}
