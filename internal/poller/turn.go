package poller

import (
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/poller/batch"
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
	// roomUntil is when to give back the room of a request that has no answer yet.
	roomUntil time.Duration
	// grantUntil is when to give back what was granted and is not asked for.
	grantUntil time.Duration
}

func newTurn(share *window.Share) *turn {
	return &turn{share: share, roomUntil: wait.Never, grantUntil: wait.Never}
}

// woken says that a reservation that was refused would succeed. What was granted is kept for as long as
// for a claim: the shard may have a call under way, or nothing to claim any more.
func (t *turn) woken(now time.Duration) { t.isCrowded, t.grantUntil = false, now+reservedFor }

// reserve gets room for up to size messages, see [window.Share.Reserve].
func (t *turn) reserve(size int, now time.Duration) (messages, bytes int, retryAt time.Time) {
	t.grantUntil = wait.Never
	messages, bytes, retryAt = t.share.Reserve(size, true)
	if messages > 0 {
		t.roomUntil = now + reservedFor
	} else {
		t.isCrowded = retryAt.IsZero()
	}
	return messages, bytes, retryAt
}

// use gives back the room of a claim that was answered: what it took is in flight now.
func (t *turn) use(l batch.Load) {
	t.share.Hold(l.InWindow, l.Bytes, t.roomUntil < wait.Never)
	t.roomUntil = wait.Never
}

// hold says what is in flight, gives back what waits for too long, and returns when to come again.
func (t *turn) hold(now time.Duration, l batch.Load) (next time.Duration) {
	if t.share.Hold(l.InWindow, l.Bytes, now >= t.roomUntil); now >= t.roomUntil {
		t.roomUntil = wait.Never
	}
	if now >= t.grantUntil {
		t.share.Yield()
		t.isCrowded, t.grantUntil = false, wait.Never
	}
	return min(t.roomUntil, t.grantUntil)
}
