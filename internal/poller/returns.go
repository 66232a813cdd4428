package poller

import (
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// returns are the messages of a shard that go back to what is due.
type returns struct {
	// underWay counts those that are not there yet: nothing is claimed until they
	// are, or the parts of a Key could hold each other up for ever.
	underWay int
	// upTo is the last of their due times, in milliseconds; 0 is none. Before all that
	// waits until then was claimed again, no slot is claimed from while any of it is due:
	// it may belong in front of what is in a slot. A clock that is set back makes it due
	// later, and what is in the slots with it.
	upTo int64
	// claimable is when the first of them can be claimed: a claim that has no answer now
	// may have been made before they were back.
	claimable time.Duration
}

// begin notes a message that is on its way back.
func (r *returns) begin(due time.Time) {
	r.underWay++
	r.note(due)
}

// note notes the due time of a message that goes back.
func (r *returns) note(due time.Time) { r.upTo = max(r.upTo, 1, due.UnixMilli()) }

// end notes that a message is back.
func (r *returns) end(now time.Duration) {
	r.underWay--
	r.claimable = min(r.claimable, now)
}

// isAny reports whether one of them may not have been claimed again.
func (r *returns) isAny() bool { return r.upTo != 0 }

// keepSlots reports whether what a claim took from a slot may have to be published after
// what went back.
func (r *returns) keepSlots(claim *message.Claim) bool {
	return r.isAny() && !claim.NextDue.IsZero() && !claim.NextDue.After(claim.Now)
}

// saw takes the answer of a claim: all that went back may have been claimed again.
func (r *returns) saw(claim *message.Claim) {
	if r.underWay == 0 && (claim.NextDue.IsZero() || claim.NextDue.UnixMilli() > r.upTo) {
		r.upTo = 0
	}
}
