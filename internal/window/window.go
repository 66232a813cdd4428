// Package window decides how much a sink has in flight: as much as its broker
// acknowledges within a short queueing delay, and no more. A slow broker or link
// then means less in flight instead of timeouts, and messages wait in Redis.
//
// The limit follows the time to an acknowledgement, as the delay-based congestion
// controls do: LEDBAT (RFC 6817), LEDBAT++ (draft-irtf-iccrg-ledbat-plus-plus),
// whose target this is, and which slows down now and then to see the delay without
// its own queue, and FAST TCP (Wei, Jin, Low and Hegde, 2006), which moves
// straight to the size that the measured delay implies. See type limit.
//
// All shards that publish to one sink share one window: each has a [Share], and a
// refused one waits in a queue. While the sink is down, one message at a time is
// let through, with growing pauses.
//
// A Share knows what its shard has in flight, and keeps a reservation until its messages are:
//
//	Reserve ──► kept ──Hold──► in flight ──Answered: learned from──Hold──► free
//	   ▲         │
//	   └── wake  └─ unused: free
//
// A reservation is mostly larger than what the claim will find. So if little is in
// flight, a share gets room for a few messages whatever others keep.
//
// The package does no I/O and starts no goroutine; it sees only numbers and
// sizes of messages.
package window

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

const (
	// downFirst and downMost are the pauses between two probes of a sink that is down.
	downFirst = 100 * time.Millisecond
	downMost  = 5 * time.Second
	// forgetAfter is how long a sink that is down may go without a probe until it no
	// longer counts as down: the failed messages were cancelled or paused, and there is
	// nothing else to try it with.
	forgetAfter = 3 * downMost

	// Every widerProbe-th probe in a row lets widerProbeSize messages through, so that
	// one message whose outcome is always unknown cannot keep the sink down for ever.
	widerProbe     = 4
	widerProbeSize = 8
	// claimTime is how long a probe may take to find messages.
	claimTime = downFirst
	// sharedFor is how long a queue counts as one that uses the sink after it had something in flight: the messages of
	// one that has few are to wait no longer than those of one that has many.
	sharedFor = time.Minute
)

// Window is what one sink may have in flight. It is safe for concurrent use.
type Window struct {
	began time.Time // when it was made

	mu       sync.Mutex
	limit    limit
	inFlight load // of all shares
	kept     load // of all shares
	// overtaken is the latest hand-over of an answered message.
	overtaken time.Time
	waiting   []*Share
	active    int                  // shares that hold something or wait
	usedAt    map[string]time.Time // by queue: when it had something in flight
	health    health
}

// load is a number of messages and their bytes.
type load struct{ messages, bytes int }

func (l load) plus(other load) load { return load{l.messages + other.messages, l.bytes + other.bytes} }

func (l load) minus(other load) load { return load{l.messages - other.messages, l.bytes - other.bytes} }

// New returns a window that has yet to learn what the sink can do.
func New() *Window { return NewSeeded(nil) }

// NewSeeded is [New] with a source of randomness, for a simulation; see
// [wait.Backoff].
func NewSeeded(random func() float64) *Window {
	return &Window{
		began:  time.Now(),
		limit:  newLimit(),
		usedAt: map[string]time.Time{},
		health: health{pause: wait.Backoff{Initial: downFirst, Limit: downMost, Random: random}},
	}
}

// now returns the time. It reads only the monotonic clock: reading the wall
// clock, too, would be most of the cost of an acknowledgement.
func (w *Window) now() time.Time { return w.began.Add(time.Since(w.began)) }

// Join returns a share of a queue, that holds nothing. wake is called when a Reserve that was
// refused would succeed, when the sink went down and when it is back; it must not
// block, and is called without a lock held.
func (w *Window) Join(queue string, wake func()) *Share {
	return &Share{window: w, queue: queue, wake: wake}
}

// Limit returns how many messages and bytes may be in flight now, for display.
func (w *Window) Limit() (messages, bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	size := w.limit.size()
	return size.messages, size.bytes
}

// isShared reports whether several queues have used the sink within a minute.
func (w *Window) isShared(now time.Time) bool {
	maps.DeleteFunc(w.usedAt, func(_ string, at time.Time) bool { return now.Sub(at) > sharedFor })
	return len(w.usedAt) > 1
}

// InFlight is how many messages and bytes are in flight.
func (w *Window) InFlight() (messages, bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.inFlight.messages, w.inFlight.bytes
}

// IsDown reports whether the sink fails as a whole. It is false again after the first
// answer, or if nothing was sent for some time.
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

// Answered records that the broker acknowledged or refused that many messages, on average
// took after they were handed to the sink; the limit learns from it while they are held. For
// messages that are no longer held, call it with none, which only says that the broker
// answers. It returns true if the sink was down until now; then all waiting shares are
// woken.
func (w *Window) Answered(messages, bytes int, took time.Duration) (wasDown bool) {
	w.mu.Lock()
	now := w.now()
	if messages > 0 {
		w.limit.acknowledged(load{messages, bytes}, took, w.inFlight, now, w.isShared)
		if began := now.Add(-took); began.After(w.overtaken) {
			w.overtaken = began
		}
	}
	var waiting []*Share
	if wasDown = w.health.answer(now); wasDown {
		waiting = slices.Clone(w.waiting)
	}
	w.mu.Unlock()
	wake(waiting)
	return wasDown
}

// Down records that the whole sink failed, and returns true if that is new:
// then waiting shares are woken, to learn when to ask again.
func (w *Window) Down() (isNew bool) {
	w.mu.Lock()
	var waiting []*Share
	if isNew = w.health.fail(w.now()); isNew {
		w.limit.restart()
		waiting = slices.Clone(w.waiting)
	}
	w.mu.Unlock()
	wake(waiting)
	return isNew
}

// IsCrowded reports whether a share waits for room.
func (w *Window) IsCrowded() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.waiting) > 0
}

// Pace is how fast the sink answers. Its fields are zero if it has not yet.
type Pace struct {
	// Took is how long an acknowledgement took lately.
	Took time.Duration
	// LastAnswer is when the last answer of any kind came.
	LastAnswer time.Time
	// Overtaken is when the latest answered message had been handed over.
	Overtaken time.Time
}

// Pace returns how fast the sink answers.
func (w *Window) Pace() Pace {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Pace{Took: w.limit.took, LastAnswer: w.health.lastAnswer, Overtaken: w.overtaken}
}

// health knows whether the sink answers at all.
//
//	what happens                         | down → down
//	the whole sink fails                 | *    → yes
//	it answers                           | *    → no
//	nobody has tried it for 15 s         | yes  → no
//	a probe is sent                      | yes  → yes
//	a probe finds nothing to send        | yes  → yes
//	*                                    | no   → no
//
// And a sink that is down is probed with:
//
//	since the last probe | probes had no answer → messages
//	less than the pause  | *                    → 0
//	the pause            | 2, 6                 → 8
//	the pause            | *                    → 1
type health struct {
	lastAnswer time.Time // the last answer of any kind
	down       bool
	lastTry    time.Time // while it is down: when something was last sent, or failed
	// While it is down, a probe is let through at retryAt. The pause grows with each
	// probe and not with each failure, because messages in flight when the sink went
	// down fail, too. A hanging probe neither delays the next one nor lets it come
	// sooner.
	retryAt time.Time
	pause   wait.Backoff
}

// fail records a failure of the whole sink, and returns true if that is new.
func (h *health) fail(now time.Time) (isNew bool) {
	h.lastTry = now
	if h.down {
		return false
	}
	h.down, h.retryAt = true, now.Add(h.pause.Next())
	return true
}

// probe returns how many messages may go through to a sink that is down: none
// before retryAt. The next caller has to wait until probed is called, or for
// claimTime.
func (h *health) probe(now time.Time) (messages int) {
	if now.Before(h.retryAt) {
		return 0
	}
	h.retryAt = now.Add(claimTime)
	if (h.pause.Failures()+1)%widerProbe == 0 {
		return widerProbeSize
	}
	return 1
}

// probed says whether the probe has sent anything. A probe that found nothing to
// send delays nobody.
func (h *health) probed(now time.Time, isSent bool) {
	switch {
	case !h.down:
	case isSent:
		h.lastTry, h.retryAt = now, now.Add(h.pause.Next())
	default:
		h.retryAt = now
	}
}

// answer records that the sink has answered for a message.
func (h *health) answer(now time.Time) (wasDown bool) {
	wasDown = h.down
	h.lastAnswer, h.down = now, false
	h.pause.Reset()
	return wasDown
}

// forget clears the state down if nobody has tried the sink for long.
func (h *health) forget(now time.Time) {
	if h.down && now.Sub(h.lastTry) >= forgetAfter {
		h.down = false
		h.pause.Reset()
	}
}
