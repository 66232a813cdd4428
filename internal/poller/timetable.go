package poller

import (
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// never is further away than anything that a shard waits for.
const never = 24 * time.Hour

// timetable is every instant that a shard's loop waits for, on the shard's
// clock. Nothing else decides when the next call is made.
type timetable struct {
	// takeAt is when the head of what is due and not parked can be taken, probeAt
	// when the next slot of parked messages can.
	takeAt, probeAt time.Duration
	// isBlocked: what is due waits for messages that are on their way into a slot.
	isBlocked bool
	// renewAt is when to claim in any case, be it nothing.
	renewAt time.Duration
	// quietUntil is before when to call nothing, pausedUntil before when to take nothing.
	quietUntil, pausedUntil time.Duration
	// unconfirmedUntil is the same as pausedUntil, because claims are not confirmed.
	unconfirmedUntil time.Duration
	// limitedUntil is the same, because of the queue's rate.
	limitedUntil time.Duration
}

// closedUntil is before when to take nothing.
func (t *timetable) closedUntil() time.Duration {
	return max(t.pausedUntil, t.unconfirmedUntil, t.limitedUntil)
}

// next is when to make the next call. isPending: a call has no answer yet, and
// is made again. mayTake: there is room for messages.
func (t *timetable) next(isPending, mayTake bool) time.Duration {
	if isPending {
		return t.quietUntil
	}
	at := t.renewAt
	if mayTake {
		first := t.probeAt
		if !t.isBlocked {
			first = min(first, t.takeAt)
		}
		at = min(at, max(first, t.closedUntil()))
	}
	return max(at, t.quietUntil)
}

// sawHead notes when what is due and not parked can be taken next, after a claim
// that has asked for it if isAsked.
func (t *timetable) sawHead(claim *message.Claim, received time.Duration, isAsked bool) {
	t.takeAt = received + untilHead(claim)
	if isAsked && len(claim.Messages) == 0 && t.takeAt <= received {
		t.takeAt = received + time.Millisecond // Due, but nothing was taken.
	}
}

// untilHead is how long after the answer the first waiting message is due, as
// far as the store knows. The estimate of Redis' clock that it implies (the
// answer's time and what passed since it was received) is never ahead of that clock.
func untilHead(claim *message.Claim) time.Duration {
	if claim.NextDue.IsZero() {
		return never
	}
	return min(never, max(0, claim.NextDue.Sub(claim.Now)))
}
