package poller

import (
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/message"
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
	runners sync.WaitGroup
}

// begin adds a batch, and runs it in a goroutine of its own.
func (f *inFlight) begin(b *batch, run func(*batch)) {
	f.order.register(b)
	f.live = append(f.live, b)
	f.runners.Go(func() { run(b) })
}

// prune forgets the batches that have ended; most is how many messages a claim takes.
func (f *inFlight) prune(most int) {
	kept := f.live[:0]
	for _, b := range f.live {
		if !b.finished() {
			kept = append(kept, b)
			continue
		}
		f.order.forget(b)
		f.ramp.learn(b, most)
	}
	clear(f.live[len(kept):])
	f.live = kept
}

// room is how many messages the next claim may take.
func (f *inFlight) room(claims *Claims) int {
	if len(f.live) >= maxLive {
		return 0
	}
	messages := 0
	for _, b := range f.live {
		messages += b.left()
	}
	return min(claims.Batch, claims.Batch*claims.InFlight-messages, f.ramp.room(len(f.live) == 0))
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
