package poller

import (
	"sync/atomic"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// returns are the messages of a shard that go back to what is due. It is safe for
// concurrent use.
type returns struct {
	// underWay counts those that are not there yet: nothing is claimed until they
	// are, or the parts of a Key could hold each other up for ever.
	underWay atomic.Int64
	// upTo is the last of their due times, in milliseconds; 0 is none. Before all that
	// waits until then was claimed again, no slot is claimed from while any of it is due:
	// it may belong in front of what is in a slot. A clock that is set back makes it due
	// later, and what is in the slots with it.
	upTo atomic.Int64
	// claimable is from when the first of them can be claimed; 0 is no instant.
	claimable atomic.Int64
	// departed are the segments whose messages are back.
	departed departures
}

// begin notes a message that is on its way back.
func (r *returns) begin(due time.Time) {
	r.underWay.Add(1)
	r.note(due)
}

// note notes the due time of a message that goes back.
func (r *returns) note(due time.Time) {
	to := max(1, due.UnixMilli())
	for {
		before := r.upTo.Load()
		if before >= to || r.upTo.CompareAndSwap(before, to) {
			return
		}
	}
}

// end notes that messages are back.
func (r *returns) end(messages int, now time.Duration) {
	r.underWay.Add(int64(-messages))
	r.claimableFrom(now)
}

// claimableFrom notes when a message that went back can be claimed.
func (r *returns) claimableFrom(at time.Duration) {
	at = max(at, 1)
	for {
		before := r.claimable.Load()
		if before != 0 && before <= int64(at) || r.claimable.CompareAndSwap(before, int64(at)) {
			return
		}
	}
}

// takeClaimable returns, once, when the first that went back can be claimed.
func (r *returns) takeClaimable() (at time.Duration, isAny bool) {
	at = time.Duration(r.claimable.Swap(0))
	return at, at != 0
}

func (r *returns) isUnderWay() bool { return r.underWay.Load() > 0 }

// isAny reports whether one of them may not have been claimed again.
func (r *returns) isAny() bool { return r.upTo.Load() != 0 }

// keepSlots reports whether what a claim took from a slot may have to be published after
// what went back.
func (r *returns) keepSlots(claim *message.Claim) bool {
	return r.isAny() && !claim.NextDue.IsZero() && !claim.NextDue.After(claim.Now)
}

// saw takes the answer of a claim: all that went back may have been claimed again.
func (r *returns) saw(claim *message.Claim) {
	until := r.upTo.Load()
	if until != 0 && !r.isUnderWay() && (claim.NextDue.IsZero() || claim.NextDue.UnixMilli() > until) {
		r.upTo.CompareAndSwap(until, 0)
	}
}
