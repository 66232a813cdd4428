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

func reserve(share *window.Share) *reservation {
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
