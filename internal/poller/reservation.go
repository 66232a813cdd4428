package poller

import (
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/window"
)

// reservedFor is how long room in the window is kept for a claim without an
// answer: a Redis that hangs must not keep the sink's window from other shards.
const reservedFor = 100 * time.Millisecond

// turn is a shard's place in the queue of its sink's window. What it is granted
// there is given back where the loop does not come for it: it may be in a call to
// a Redis that hangs.
type turn struct {
	share *window.Share
	timer *time.Timer
	wake  func()

	// The loop's own.
	isCrowded bool         // the window is full, and wakes us
	room      *reservation // for what the loop asks for; nil where it takes nothing
}

func newTurn(w *window.Window, wake func()) *turn {
	t := &turn{wake: wake}
	t.timer = time.AfterFunc(time.Hour, t.lapse)
	t.timer.Stop()
	t.share = w.Join(func() {
		t.timer.Reset(reservedFor)
		wake()
	})
	return t
}

// reserve gets room for up to so many messages, see [window.Share.Reserve].
func (t *turn) reserve(size int) (messages, bytes int, retryAt time.Time) {
	t.timer.Stop() // The loop comes for it now.
	messages, bytes, retryAt = t.share.Reserve(size, true)
	if messages > 0 {
		t.room = newReservation(t.share)
	} else {
		t.isCrowded = retryAt.IsZero()
	}
	return messages, bytes, retryAt
}

// use says what the room was used for.
func (t *turn) use(messages, bytes int) {
	if t.room != nil {
		t.room.use(messages, bytes)
	}
	t.room = nil
}

// lapse leaves the queue; the loop asks again when it comes round.
func (t *turn) lapse() {
	t.share.Yield()
	t.wake()
}

// leave gives everything back.
func (t *turn) leave() {
	t.timer.Stop()
	t.share.Leave()
}

// reservation is room in the sink's window for what a claim may take.
type reservation struct {
	share *window.Share
	timer *time.Timer

	mu     sync.Mutex
	isOver bool
}

func newReservation(share *window.Share) *reservation {
	r := &reservation{share: share}
	r.timer = time.AfterFunc(reservedFor, r.lapse)
	return r
}

// lapse gives the room back. The answer that comes late uses what it needs.
func (r *reservation) lapse() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.isOver {
		r.share.Use(0, 0)
	}
}

// use says what the claim took. It may be more than there was room for.
func (r *reservation) use(messages, bytes int) {
	r.timer.Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isOver = true
	r.share.Use(messages, bytes)
}

// occupied is the room that a batch still takes in the sink's window.
type occupied struct {
	share           *window.Share
	messages, bytes int
}

// answered says that the broker has answered messages, so long after they were
// handed over, on average; and tells whether the sink was down until now.
func (o *occupied) answered(messages, bytes int, took time.Duration) (wasDown bool) {
	o.messages -= messages
	o.bytes -= bytes
	return o.share.Answered(messages, bytes, took)
}

// gone says that messages are not in flight any more, without an answer.
func (o *occupied) gone(messages, bytes int) {
	o.messages -= messages
	o.bytes -= bytes
	o.share.Gone(messages, bytes)
}

// end leaves the window.
func (o *occupied) end() {
	if o.messages > 0 || o.bytes != 0 {
		o.gone(o.messages, o.bytes)
	}
}
