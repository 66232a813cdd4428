// Package window decides how much a sink has in flight: so much as its broker
// acknowledges within a short queueing delay, and no more. A slow broker or link
// is then met by less in flight instead of by timeouts, and what waits, waits in
// Redis.
//
// The limit follows the time to an acknowledgement, as the delay-based congestion
// controls do: LEDBAT (RFC 6817), LEDBAT++ (draft-irtf-iccrg-ledbat-plus-plus),
// whose target this is, and which slows down now and then to see the
// delay without its own queue, and FAST TCP (Wei, Jin, Low and Hegde, 2006), which
// moves straight to the size that the measured delay implies. See type limit.
//
// All shards that publish to one sink share one window: each has a [Share], and
// who was refused waits in a queue. While the sink is down, one message at a time
// is let through, with growing pauses.
//
// A Share is told what its shard has in flight, and keeps what it has reserved until that is:
//
//	Reserve ──► kept ──Hold──► in flight ──Answered: learned from──Hold──► free
//	   ▲         │
//	   └── wake  └─ unused: free
//
// What is kept for a claim is mostly more than the claim will find. So where little
// is in flight, a share gets room for a few messages whatever others keep.
//
// The package does no I/O and starts no goroutine; it knows no messages, only
// their numbers and sizes.
package window

import (
	"slices"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

// Window is what one sink may have in flight. It is safe for concurrent use.
type Window struct {
	began time.Time // when it was made

	mu       sync.Mutex
	limit    limit
	inFlight load // of all shares
	kept     load // of all shares
	// overtaken is the latest hand-over of what was answered.
	overtaken time.Time
	waiting   []*Share
	active    int // shares that hold something or wait
	health    health
}

// load is a number of messages and their bytes.
type load struct{ messages, bytes int }

func (l load) plus(other load) load { return load{l.messages + other.messages, l.bytes + other.bytes} }

// minus is never less than nothing: what is said twice is taken from nobody else.
func (l load) minus(other load) load {
	left := load{max(0, l.messages-other.messages), max(0, l.bytes-other.bytes)}
	if left.messages == 0 {
		left.bytes = 0
	}
	return left
}

// New returns a window that has yet to learn what the sink can do.
func New() *Window { return NewSeeded(nil) }

// NewSeeded is [New] with a source for what is left to chance, for a simulation; see
// [wait.Backoff].
func NewSeeded(random func() float64) *Window {
	return &Window{
		began:  time.Now(),
		limit:  newLimit(),
		health: health{pause: wait.Backoff{Initial: downFirst, Limit: downMost, Random: random}},
	}
}

// now is the time. It reads the monotonic clock only: reading the wall clock too
// would be the better part of what an acknowledgement costs.
func (w *Window) now() time.Time { return w.began.Add(time.Since(w.began)) }

// Join returns a share that holds nothing. wake is called when a Reserve that was
// refused would succeed, when the sink went down and when it is back; it must not
// block, and is called without a lock held.
func (w *Window) Join(wake func()) *Share { return &Share{window: w, wake: wake} }

// Limit is how many messages and bytes may be in flight now, for people.
func (w *Window) Limit() (messages, bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	size := w.limit.size()
	return size.messages, size.bytes
}

// InFlight is how many messages and bytes are in flight.
func (w *Window) InFlight() (messages, bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.inFlight.messages, w.inFlight.bytes
}

// IsDown reports whether what is sent to the sink fails as a whole. It is false again with
// the first answer, and where nothing was sent for some time.
func (w *Window) IsDown() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.isDown()
}

func (w *Window) isDown() bool {
	if w.inFlight.messages == 0 {
		w.health.forget(w.now())
	}
	return w.health.down
}

// answered learns from messages that the broker has answered, took after they were handed over. It
// returns whom to wake where the sink is back.
func (w *Window) answered(acked load, took time.Duration) (wasDown bool, waiting []*Share) {
	now := w.now()
	if acked.messages > 0 {
		w.limit.acknowledged(acked, took, w.inFlight, now)
		if began := now.Add(-took); began.After(w.overtaken) {
			w.overtaken = began
		}
	}
	if wasDown = w.health.answer(now); wasDown {
		waiting = slices.Clone(w.waiting)
	}
	return wasDown, waiting
}

// IsCrowded reports whether a share waits for room.
func (w *Window) IsCrowded() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.waiting) > 0
}

// Pace is how fast the sink answers. Its fields are zero where it has not yet.
type Pace struct {
	// Took is what an acknowledgement took lately.
	Took time.Duration
	// Answered is when the last answer of any kind came.
	Answered time.Time
	// Overtaken is when the latest message that was answered had been handed over.
	Overtaken time.Time
}

// Pace returns how fast the sink answers.
func (w *Window) Pace() Pace {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Pace{Took: w.limit.took, Answered: w.health.answered, Overtaken: w.overtaken}
}
