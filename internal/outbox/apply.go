package outbox

import (
	"errors"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/store"
)

// This file decides, and does nothing else: what becomes of rows, given what the
// table says, what Redis answered, and whether something may have been written
// and forgotten. apply_test.go goes through all of it.

// Reasons, for people.
const (
	reasonCopy       = "a copy may be out"
	reasonForgotten  = "it may have been published before"
	reasonNotInTable = "not in the table, and not in Redis"
	reasonLater      = "a later operation came first"
	reasonWasRefused = "the message was refused"
	reasonWasEnded   = "the message was cancelled"
	reasonUnsure     = "an earlier try may have taken effect"
	reasonNoBody     = "the dead letter has no body"
)

// update is what becomes of one row. The zero value leaves it as it is.
type update struct {
	state  state // 0: stays pending, or what it is
	reason string
	remove bool // the row is deleted
	tried  bool // it may be in Redis
	move   *moved
}

// moved is what a reschedule gives to the message's row.
type moved struct {
	token    string
	dueMs    int64
	revision int64
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
	failureLater           // it did not take place: ask again later
	failureUnsure          // it may have taken place: ask again, and remember that
	failureInvalid         // it can never take place
)

func failureOf(err error) failure {
	invalid := new(message.InvalidError)
	switch {
	case err == nil || errors.Is(err, store.ErrNotDurable):
		return failureNone
	case errors.As(err, &invalid):
		return failureInvalid
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrFull), errors.Is(err, store.ErrNoLayout):
		return failureLater
	default:
		return failureUnsure // Also what nobody thought of.
	}
}

// decider decides by how long rows are kept: until their message is stored, or published.
type decider struct {
	untilPublished bool
}

// loaded is what becomes of a message's row that is in Redis now.
func (d decider) loaded() update {
	if d.untilPublished {
		return update{state: stateStored}
	}
	return update{remove: true}
}

// over is what becomes of a message's row that was published.
func (d decider) over() update {
	if d.untilPublished {
		return update{state: statePublished}
	}
	return update{remove: true}
}

// put decides what becomes of a message's row that was put into Redis.
func (d decider) put(answer store.Answer) update {
	switch failureOf(answer.Err) {
	case failureLater:
		return update{}
	case failureUnsure:
		return update{tried: true}
	case failureInvalid:
		return update{state: stateRefused, reason: answer.Err.Error()}
	case failureNone:
	}
	switch answer.Code {
	case store.Created, store.Mine:
		return d.loaded()
	case store.EndedPublished:
		return d.over()
	case store.EndedCancelled:
		return update{state: stateCancelled}
	case store.EndedMoved:
		return update{tried: true} // By a reschedule that is not recorded: it comes again.
	case store.Waiting:
		return update{state: stateRefused, reason: "another message of that id waits in Redis"}
	case store.InFlight:
		return update{state: stateRefused, reason: "another message of that id is being published"}
	case store.Dead:
		return update{state: stateRefused, reason: "another message of that id is in the dead letters: " + answer.Reason}
	default:
		return update{tried: true}
	}
}

// place is where the message of an operation is, as the table tells.
type place int

const (
	placePending  place = iota // its row is pending and locked by us
	placeStored                // its row says that Redis has it
	placeGone                  // its row was deleted, or says that it was published: Redis had it
	placeUnlisted              // there was no row when the operation was inserted
)

// situation is what the table says about an operation before Redis is asked.
type situation struct {
	verb  verb
	place place
	// forgotten: the message of a pending row may have been written to Redis so
	// long ago that Redis has forgotten how it ended.
	forgotten bool
	// repeated: the operation itself may have been run that long ago.
	repeated bool
	// cancelled: the last message of that identity was, as its row says.
	cancelled bool
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
	case statePending, stateStored, stateTooLate, stateUnknown, stateSuperseded:
	}
	return verdict{op: update{state: stateUnknown, reason: reasonForgotten}}
}

// late is the verdict on an operation that a later one has overtaken.
func late() verdict {
	return verdict{op: update{state: stateSuperseded, reason: reasonLater}}
}

// judge decides what becomes of an operation and its message's row, by the
// answer of Redis.
func (d decider) judge(s situation, answer store.Answer) verdict {
	switch failureOf(answer.Err) {
	case failureLater:
		return verdict{stop: true}
	case failureUnsure:
		return verdict{op: update{tried: true}, stop: true}
	case failureInvalid:
		return verdict{op: update{state: stateRefused, reason: answer.Err.Error()}}
	case failureNone:
	}
	switch answer.Code {
	case store.Done:
		return d.judgeDone(s, "")
	case store.DoneMaybePublished:
		return d.judgeDone(s, reasonCopy)
	case store.InFlight:
		// A pending row stays so: putting it tells whose message is in flight.
		return verdict{op: update{state: stateTooLate}}
	case store.EndedPublished:
		return verdict{op: update{state: stateTooLate}, head: s.onHead(d.over())}
	case store.EndedCancelled:
		v := ended(s.verb, stateCancelled)
		v.head = s.onHead(update{state: stateCancelled})
		return v
	case store.NotFound:
		return d.judgeNotFound(s)
	case store.NoBody:
		return verdict{op: update{state: stateRefused, reason: reasonNoBody}}
	case store.Later:
		return verdict{stop: true} // Whose message that is the table tells by now.
	default:
		return verdict{op: update{tried: true}, stop: true}
	}
}

// onHead drops an update where there is no row to update.
func (s situation) onHead(u update) update {
	if s.place == placePending || s.place == placeStored {
		return u
	}
	return update{}
}

// judgeDone: Redis did it; copyOut says that the broker may have had it before.
func (d decider) judgeDone(s situation, copyOut string) verdict {
	op := update{state: stateUnknown, reason: copyOut}
	if s.verb == verbCancel {
		if copyOut == "" {
			op = update{state: stateCancelled}
		}
		return verdict{op: op, head: s.onHead(update{state: stateCancelled, reason: copyOut})}
	}
	if copyOut == "" {
		op = update{state: stateStored}
	}
	head := d.loaded()
	if !head.remove {
		head.move = &s.op
	}
	return verdict{op: op, head: s.onHead(head)}
}

// judgeNotFound: Redis has neither the message nor a trace of it.
func (d decider) judgeNotFound(s situation) verdict {
	switch {
	case s.place == placePending:
		return s.judgeAbsent()
	case s.repeated:
		return verdict{op: update{state: stateUnknown, reason: reasonUnsure}}
	case s.place == placeUnlisted && s.cancelled:
		return ended(s.verb, stateCancelled)
	case s.place == placeUnlisted:
		return verdict{op: update{state: stateUnknown, reason: reasonNotInTable}}
	default: // It was there, so it has left.
		return verdict{op: update{state: stateTooLate}}
	}
}

// judgeAbsent: a pending row's message is not in Redis. From now on nobody can
// write it there under the row's old token.
func (s situation) judgeAbsent() verdict {
	if s.verb == verbCancel {
		if s.forgotten {
			return verdict{op: update{state: stateUnknown, reason: reasonForgotten}, head: update{state: stateUnknown, reason: reasonForgotten}}
		}
		return verdict{op: update{state: stateCancelled}, head: update{state: stateCancelled}}
	}
	if s.forgotten {
		return verdict{op: update{state: stateUnknown, reason: reasonForgotten}, head: update{tried: true, move: &s.op}}
	}
	return verdict{op: update{state: stateStored}, head: update{move: &s.op}}
}
