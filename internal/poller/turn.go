package poller

import (
	"time"

	"github.com/delaybridge/delaybridge/internal/window"
)

// reservedFor is how long room in the window is kept for a claim without an
// answer: a Redis that hangs must not keep the sink's window from other shards.
const reservedFor = 100 * time.Millisecond

// turn is a shard's place in the queue of its sink's window, and the room that it
// has there for the claim that has no answer yet.
type turn struct {
	share     *window.Share
	isCrowded bool // the window is full, and wakes us
	// isReserved: a request has room, until it is answered; it is given back at roomUntil.
	isReserved bool
	roomUntil  time.Duration
	// grantUntil is when to give back what was granted while a call was under way.
	grantUntil time.Duration
}

func newTurn(share *window.Share) *turn {
	return &turn{share: share, roomUntil: never, grantUntil: never}
}

// woken says that a reservation that was refused would succeed.
func (t *turn) woken(now time.Duration, isBusy bool) {
	t.isCrowded, t.grantUntil = false, never
	if isBusy {
		t.grantUntil = now + reservedFor
	}
}

// tryAgain has room asked for again.
func (t *turn) tryAgain() { t.isCrowded = false }

// reserve gets room for up to so many messages, see [window.Share.Reserve].
func (t *turn) reserve(size int, now time.Duration) (messages, bytes int, retryAt time.Time) {
	t.grantUntil = never
	messages, bytes, retryAt = t.share.Reserve(size, true)
	if messages > 0 {
		t.isReserved, t.roomUntil = true, now+reservedFor
	} else {
		t.isCrowded = retryAt.IsZero()
	}
	return messages, bytes, retryAt
}

// use says what the claim took. It may be more than there was room for.
func (t *turn) use(messages, bytes int) {
	if t.isReserved {
		t.share.Use(messages, bytes)
	}
	t.isReserved, t.roomUntil = false, never
}

// lapse gives back what waits for too long, and returns when to come again. The answer
// that comes late uses what it needs.
func (t *turn) lapse(now time.Duration) (next time.Duration) {
	if now >= t.roomUntil {
		t.share.Use(0, 0)
		t.roomUntil = never
	}
	if now >= t.grantUntil {
		t.share.Yield()
		t.isCrowded, t.grantUntil = false, never
	}
	return min(t.roomUntil, t.grantUntil)
}
