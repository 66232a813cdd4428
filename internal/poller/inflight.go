package poller

import (
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

// maxLive is how many claims of a shard may be under way, messages that hang and
// keep theirs among them.
const maxLive = 64

// inFlight is what a shard has in flight: its batches from their claims to their
// ends. Only the shard's loop uses it.
type inFlight struct {
	live    []*batch // in the order of their claims
	order   order
	ramp    ramp
	pause   wait.Backoff // after claims that were not confirmed
	runners sync.WaitGroup
}

func newInFlight() inFlight {
	return inFlight{pause: wait.Backoff{Initial: unconfirmedInitial, Limit: unconfirmedLimit}}
}

// begin adds a batch, and runs it in a goroutine of its own.
func (f *inFlight) begin(b *batch, run func(*batch)) {
	f.order.register(b)
	f.live = append(f.live, b)
	f.runners.Go(func() { run(b) })
}

// prune forgets the batches that have ended; most is how many messages a claim
// takes. It returns for how long to take none, where one was not confirmed.
func (f *inFlight) prune(most int) (pause time.Duration) {
	kept, isUnconfirmed := f.live[:0], false
	for _, b := range f.live {
		if !b.finished() {
			kept = append(kept, b)
			continue
		}
		f.order.forget(b)
		f.ramp.learn(b, most)
		switch {
		case b.lesson.unconfirmed:
			isUnconfirmed = true
		case !b.confirming.Load():
			f.pause.Reset()
		}
	}
	clear(f.live[len(kept):])
	f.live = kept
	if isUnconfirmed {
		pause = f.pause.Next()
	}
	return pause
}

// room is how many messages the next claim may take.
func (f *inFlight) room(claims *Claims) int {
	switch {
	case len(f.live) >= maxLive:
		return 0
	case f.pause.Failures() > 0: // One message finds out whether claims are confirmed again.
		return max(0, 1-len(f.live))
	}
	confirming := 0
	for _, b := range f.live {
		if b.confirming.Load() {
			confirming++
		}
	}
	if confirming >= claims.InFlight { // Each holds a connection.
		return 0
	}
	return min(claims.Batch, claims.Batch*claims.InFlight-f.messages(), f.ramp.room(len(f.live) == 0))
}

// messages is how many have no fate yet.
func (f *inFlight) messages() (n int) {
	for _, b := range f.live {
		n += b.left()
	}
	return n
}

// tokens are the claims whose deadlines are to be extended.
func (f *inFlight) tokens() (tokens []message.ClaimToken) {
	for _, b := range f.live {
		if !b.forsaken.Load() && !b.finished() {
			tokens = append(tokens, b.claim.Token)
		}
	}
	return tokens
}

// extend notes the new deadlines of claims, which a request of then has listed.
func (f *inFlight) extend(tokens []message.ClaimToken, began, timeout time.Duration) {
	for _, b := range f.live {
		if len(tokens) == 0 {
			return
		}
		if b.claim.Token != tokens[0] {
			continue
		}
		tokens = tokens[1:]
		if int64(began) < b.deadline.Load() {
			b.deadline.Store(int64(began + timeout))
		}
	}
}

// lose notes that a claim was reclaimed.
func (f *inFlight) lose(token message.ClaimToken) {
	for _, b := range f.live {
		if b.claim.Token == token {
			b.lost.Store(true)
		}
	}
}
