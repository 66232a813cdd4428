package poller

import "time"

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
		at = min(at, max(first, t.pausedUntil))
	}
	return max(at, t.quietUntil)
}

// hintCounts says whether a hint ends the sleep: it is of use only where it
// could be followed.
func (t *timetable) hintCounts(now time.Duration, isPending, mayTake bool) bool {
	return !isPending && mayTake && now >= t.quietUntil && now >= t.pausedUntil
}
