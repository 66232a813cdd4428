package store

import (
	"errors"
	"fmt"
	"time"
)

// The scripts' status: the call took place, or did not and why.
const (
	statusDone   = 0
	statusReload = 1 // another epoch: load the layout again
	statusMissed = 2 // Redis' clock is not within the run's span
	statusFull   = 3 // the shard has as many messages as the queue's budget allows
)

var errBudget = fmt.Errorf("%w: the queue's budget is used up", ErrFull)

var errMissed = errors.New("Redis' clock was not within the span of the run")

// Code is what a producer's script answers for one message.
type Code int64

// The codes, as the scripts return them.
const (
	// NotLooked: the script left it for the next one.
	NotLooked Code = 0
	// Created: the message waits, or did until it was published or cancelled.
	Created Code = 1
	// Waiting: a message of that identity waits.
	Waiting Code = 2
	// InFlight: a message of that identity is being published.
	InFlight Code = 3
	// Dead: a message of that identity is in the dead letters.
	Dead Code = 4
	// Unknown: nobody can tell any longer whose message is there.
	Unknown Code = 5
	// Replaced: as Created, in the place of another.
	Replaced Code = 6
	// Done: cancelled, rescheduled, redriven or purged.
	Done Code = 7
	// NotFound: there is no such message.
	NotFound Code = 8
	// DoneMaybePublished: done, but a copy may have been published before.
	DoneMaybePublished Code = 9
	// NoBody: a dead letter without a body cannot be redriven.
	NoBody Code = 10
	// free: the identity is free in the home of an earlier layout, where nothing
	// is created any more. Its detail is 1 if the row is older than the shard.
	free Code = 11
	// Mine: the row's message is here, under its token or the one that took its place.
	Mine Code = 12
	// EndedPublished: the row's message was published, less than a minute ago, or
	// the ledger tells so.
	EndedPublished Code = 13
	// EndedCancelled: as EndedPublished, but it was cancelled, replaced or purged,
	// or was cancelled before it came.
	EndedCancelled Code = 14
	// EndedMoved: a reschedule has replaced the row's token by another one. For a put, the
	// message is not here; for a cancel, it is.
	EndedMoved Code = 15
	// OtherTopic: a message of that identity exists, but the caller may not touch its
	// topic, see [WithTopics].
	OtherTopic Code = 16
	// EndedMaybe: as EndedCancelled, but a copy may have been published before.
	EndedMaybe Code = 17
)

// Answer is the result for one message of a call.
type Answer struct {
	Code Code
	// DueAt is the due time now in force, if the code has one.
	DueAt time.Time
	// Reason is the dead letter's, for Dead.
	Reason string
	// Missing says which confirmations the run behind this answer lacks; nil if it lacks
	// none. NotDurable is set if that run may have changed something.
	Missing    error
	NotDurable bool
	// Err is one of the package's errors, with its cause; Code has no meaning then.
	Err error
}

// confirmed is the answer for a row, which must stay true after a failover. That
// includes answers without a change: "no message" leaves a tombstone, and a message
// in flight may not be in flight after a failover.
func (a Answer) confirmed() Answer {
	if a.Err == nil && a.Missing != nil {
		return Answer{Err: fmt.Errorf("%w: %w", ErrNotDurable, a.Missing)}
	}
	return a
}
