// Package window decides how much a sink has in flight: so much as its broker
// acknowledges within a short queueing delay, and no more. A slow broker or link
// is then met by less in flight instead of by timeouts, and what waits, waits in
// Redis.
//
// The limit follows the measured time to an acknowledgement as LEDBAT does (RFC
// 6817): the least time of the last minute is taken for the broker's own, what is
// above it for queueing, and the limit moves in proportion to how far the
// queueing is from its target. It begins with a slow start, counts messages and
// bytes, and grows only while it is what holds the load back.
//
// All shards that publish to one sink share one window fairly: each has a
// [Share], and who was refused waits in a queue. While the sink is down, one
// message at a time is let through, with growing pauses.
//
// The package does no I/O and starts no goroutine; it knows no messages, only
// their numbers and sizes.
package window

import (
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/wait"
)

const (
	// target is how long a message may queue in front of the broker and in it.
	// It bounds what a slow link holds in flight, and is long enough that the
	// link never runs dry between two claims.
	target = 100 * time.Millisecond
	// baseFor is how long the least acknowledgement time counts, in two halves.
	baseFor = time.Minute

	firstMessages = 256
	leastMessages = 1
	mostMessages  = 1 << 16

	firstBytes = 256 << 10
	leastBytes = 8 << 10
	mostBytes  = 64 << 20

	// downFirst and downMost are the pauses between two messages that are let
	// through to a sink that is down.
	downFirst = 100 * time.Millisecond
	downMost  = 5 * time.Second
)

// Window is what one sink may have in flight. It is safe for concurrent use.
type Window struct {
	mu      sync.Mutex
	limit   limit
	used    load // in flight and reserved
	waiting []*Share
	active  int // shares that have something in flight or reserved, or that wait
	health  health
}

// load is a number of messages and their bytes.
type load struct{ messages, bytes int }

// New returns a window in its slow start.
func New() *Window {
	return &Window{
		limit:  newLimit(),
		health: health{pause: wait.Backoff{Initial: downFirst, Limit: downMost}},
	}
}

// Limit is how many messages and bytes may be in flight now, for people.
func (w *Window) Limit() (messages, bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.limit.messages(), w.limit.bytes()
}

// InFlight is how many messages and bytes are.
func (w *Window) InFlight() (messages, bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.used.messages, w.used.bytes
}

// Pace is what an acknowledgement took lately, and when the last answer of any
// kind came; zero where there was none yet.
func (w *Window) Pace() (took time.Duration, answered time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.limit.smooth, w.health.answered
}

// grant is how much of what a share wants it may have now; nothing where that
// would be too little to be worth a claim.
func (w *Window) grant(want int) load {
	messages, bytes := w.limit.messages(), w.limit.bytes()
	fair := max(1, messages/max(1, w.active))
	free := load{messages - w.used.messages, bytes - w.used.bytes}
	if w.used.messages == 0 {
		free.bytes = max(free.bytes, leastBytes)
	}
	// Claims of a few messages each would cost Redis more than they are worth.
	worth := max(1, min(want, fair/2))
	if free.messages < worth || free.bytes < min(bytes/(2*max(1, w.active)), leastBytes) || free.bytes <= 0 {
		return load{}
	}
	return load{min(want, fair, free.messages), max(min(free.bytes, bytes/max(1, w.active)), min(free.bytes, leastBytes))}
}

// serve gives what is free to those that wait, in turn. It returns whom to wake.
func (w *Window) serve() []*Share {
	var served []*Share
	for len(w.waiting) > 0 && !w.health.down {
		s := w.waiting[0]
		granted := w.grant(s.want)
		if granted.messages == 0 {
			break
		}
		s.hold(granted)
		s.granted = granted
		w.waiting = w.waiting[1:]
		s.isWaiting = false
		served = append(served, s)
	}
	return served
}

func wake(shares []*Share) {
	for _, s := range shares {
		s.wake()
	}
}
