package poller

import (
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/window"
)

// reservedFor is how long room in the window is kept for a claim without an
// answer: a Redis that hangs must not keep the sink's window from other shards.
const reservedFor = 100 * time.Millisecond

// reservation is room in the sink's window for what a claim may take.
type reservation struct {
	share *window.Share
	timer *time.Timer

	mu              sync.Mutex
	messages, bytes int // zero once given back
}

func reserve(share *window.Share, messages, bytes int) *reservation {
	r := &reservation{share: share, messages: messages, bytes: bytes}
	r.timer = time.AfterFunc(reservedFor, func() { r.becomes(0, 0) })
	return r
}

// use says what the claim took. It may be more than there was room for, where
// the answer came late.
func (r *reservation) use(messages, bytes int) {
	r.timer.Stop()
	r.becomes(messages, bytes)
}

func (r *reservation) becomes(messages, bytes int) {
	r.mu.Lock()
	reserved, reservedBytes := r.messages, r.bytes
	r.messages, r.bytes = 0, 0
	r.mu.Unlock()
	if reserved != messages || reservedBytes != bytes {
		r.share.Use(reserved, reservedBytes, messages, bytes)
	}
}
