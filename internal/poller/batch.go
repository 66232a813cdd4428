package poller

import (
	"sync/atomic"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/window"
)

// lease is an unbroken time of holding a shard. Once it lapsed it never comes
// back: what was claimed under it may belong to somebody else by now.
type lease struct {
	until atomic.Int64 // instant of the shard's clock
}

// batch is one claim from its answer to its end. Its runner owns it; the loop
// reads what is not safe for concurrent use only after done is closed.
type batch struct {
	claim message.Claim
	lease *lease
	// deadline is when no publish may start any more: an instant of the shard's clock.
	deadline atomic.Int64
	// route is the closed one from whose slot it was claimed; nil where it was due
	// and not parked. isGivenUp: it is not to be published any more.
	route     *route
	isGivenUp bool
	// parked are the messages whose routes were closed when it was claimed.
	parked []parking
	fates  fates
	open   atomic.Int64 // messages without a verdict
	hung   atomic.Int64 // of these, those that hang
	// isProbe: it was claimed from a slot whose route takes nothing, as far as is known.
	isProbe bool
	window occupied
	lesson lesson

	signals
}

// lesson is what the loop learns of a batch that has ended: of the sink, that it
// panicked or answered; of the claim, that it was not confirmed.
type lesson struct{ panicked, answered, unconfirmed bool }

// signals are what the loop and the runner of a batch tell each other.
type signals struct {
	// forsaken stops the extension of the deadline; lost says that the claim was reclaimed.
	forsaken, lost atomic.Bool
	confirming     atomic.Bool   // the claim has to be confirmed yet
	changed        chan struct{} // of 1: an outcome has come, or an earlier batch has told something
	done           chan struct{}
}

// parking is a message of a batch that goes to the slot of a route.
type parking struct {
	index int
	route *route
}

func newBatch(claim message.Claim, under *lease, deadline time.Duration) *batch {
	b := &batch{claim: claim, lease: under, signals: signals{changed: make(chan struct{}, 1), done: make(chan struct{})}}
	b.open.Store(int64(len(claim.Messages)))
	b.deadline.Store(int64(deadline))
	return b
}

// working is how many messages somebody may hope for: none of a probe, nor what hangs.
func (b *batch) working() int {
	if b.isProbe {
		return 0
	}
	return int(b.open.Load() - b.hung.Load())
}

func (b *batch) finished() bool { return closed(b.done) }

// mayPublish reports whether a publish may start: the lease and the claim last.
func (b *batch) mayPublish(now time.Duration) bool {
	return int64(now) < b.lease.until.Load() && int64(now) < b.deadline.Load()
}

// numbered are messages as they are published now: all of them where indices is nil.
func (b *batch) numbered(indices []int) []message.Message {
	all := b.claim.Messages
	if indices == nil {
		messages := make([]message.Message, len(all))
		for i := range all {
			number(&messages[i], &all[i])
		}
		return messages
	}
	messages := make([]message.Message, len(indices))
	for n, i := range indices {
		number(&messages[n], &all[i])
	}
	return messages
}

func number(m *message.Message, claimed *message.Claimed) {
	*m = claimed.Message
	m.Attempt = claimed.Attempts.Begun + 1
}

// weight is what a message counts for in the window: with what surrounds it.
func weight(m *message.Message) int {
	const envelope = 128
	return m.Size() + envelope
}

// occupy notes what the batch takes in the window: all that is to be published.
// What is parked is not.
func (b *batch) occupy(share *window.Share) {
	bytes := 0
	for i := range b.claim.Messages {
		bytes += weight(&b.claim.Messages[i].Message)
	}
	for _, p := range b.parked {
		bytes -= weight(&b.claim.Messages[p.index].Message)
	}
	b.window = occupied{share: share, messages: len(b.claim.Messages) - len(b.parked), bytes: bytes}
}
