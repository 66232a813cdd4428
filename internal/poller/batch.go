package poller

import (
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/window"
)

// settleAfter is how long what was decided waits for the rest of its batch,
// giveBackAfter where messages go back: they may be others' predecessors.
const (
	settleAfter   = 100 * time.Millisecond
	giveBackAfter = 10 * time.Millisecond
)

// lease is an unbroken time of holding a shard. Once it lapsed it never comes
// back: what was claimed under it may belong to somebody else by now.
type lease struct {
	until time.Duration // instant of the shard's clock
}

// batch is one claim from its answer to its end: what is known of each of its messages,
// and which verdicts Redis has yet to get. It decides nothing; see [shard].
type batch struct {
	claim message.Claim
	lease *lease
	// deadline is when no publish may start any more.
	deadline time.Duration
	// route is the closed one from whose slot it was claimed; nil where it was due
	// and not parked. isProbe: it took nothing then, as far as was known. isGivenUp: it is
	// not to be published any more.
	route              *route
	isProbe, isGivenUp bool
	// parked are the messages whose routes were closed when it was claimed.
	parked []parking
	window occupied
	calls  []*call

	// Of chains: its segments, those that wait, and what they were told.
	segments segments
	behind   []*segment
	told     []passage

	verdicts []message.Verdict
	parkedIn []*route // by message; nil where none was parked
	ended    []bool
	open     int // without a verdict
	hung     int // of these, those that hang
	left     int // not settled
	decided  []int
	since    time.Duration // of the first of the decided
	goesBack bool
	settling settling

	lookedAt time.Duration // for messages that hang
	// confirming: the claim has to be confirmed yet. unconfirmed: it was not.
	confirming, unconfirmed bool
	// answered and panicked are what the sink did; succeeded: something from a slot was
	// taken by the broker.
	answered, panicked, succeeded bool
	// forsaken: its deadline is not extended any more. lost: it was reclaimed. abandoned:
	// it is not ours to settle any more.
	forsaken, lost, abandoned bool
}

// settling is a settle that is under way.
type settling struct {
	settlement message.Settlement
	indices    []int // none: none is
	began      time.Duration
	isCalled   bool          // it has no answer yet
	againAt    time.Duration // where it has failed
	pause      wait.Backoff
}

// parking is a message of a batch that goes to the slot of a route.
type parking struct {
	index int
	route *route
}

func newBatch(claim message.Claim, under *lease, deadline time.Duration) *batch {
	n := len(claim.Messages)
	return &batch{
		claim: claim, lease: under, deadline: deadline, open: n, left: n,
		verdicts: make([]message.Verdict, n), decided: make([]int, 0, n), ended: make([]bool, n),
	}
}

// working is how many messages somebody may hope for: none of a probe, nor what hangs.
func (b *batch) working() int {
	if b.isProbe {
		return 0
	}
	return b.open - b.hung
}

// hasEnded reports whether nothing is left to do for it, and no call of the sink runs.
func (b *batch) hasEnded() bool {
	if b.left > 0 && (!b.abandoned || b.open > 0) || b.settling.isCalled {
		return false
	}
	for _, c := range b.calls {
		if !c.hasReturned.Load() {
			return false
		}
	}
	return true
}

// note records a verdict; in is the route whose slot the message goes to.
func (b *batch) note(i int, verdict message.Verdict, in *route, now time.Duration) {
	if len(b.decided) == 0 {
		b.since = now
	}
	if in != nil {
		if b.parkedIn == nil {
			b.parkedIn = make([]*route, len(b.verdicts))
		}
		verdict.Verb, verdict.Slot = message.VerbPark, in.slot
		b.parkedIn[i] = in
	}
	b.goesBack = b.goesBack || fateOf(&verdict) == fateBroken
	b.verdicts[i] = verdict
	b.decided = append(b.decided, i)
	b.open--
}

// settleAt is when to write what is decided.
func (b *batch) settleAt() time.Duration {
	switch {
	case b.settling.isCalled || b.abandoned:
		return never
	case len(b.settling.indices) > 0:
		return b.settling.againAt
	case len(b.decided) == 0:
		return never
	case b.open == 0:
		return 0
	case b.goesBack:
		return b.since + giveBackAfter
	default:
		return b.since + settleAfter
	}
}

// settle moves what is decided into a settlement: the part of the claim that is not
// settled, with the verdicts that there are, and VerbKeep for what has none.
func (b *batch) settle(parks []message.ParkedRoute, now time.Duration, pause wait.Backoff) {
	all := b.claim.Messages
	settlement := message.Settlement{Claim: b.claim, Parks: parks}
	b.settling = settling{indices: b.decided, began: now, pause: pause}
	b.goesBack = false
	if len(b.decided) == len(all) {
		settlement.Verdicts, b.decided = b.verdicts, nil
		b.settling.settlement = settlement
		return
	}
	decided := make([]bool, len(all))
	for _, i := range b.decided {
		decided[i] = true
	}
	b.decided = make([]int, 0, b.open)
	settlement.Claim.Messages = make([]message.Claimed, 0, b.left)
	settlement.Verdicts = make([]message.Verdict, 0, b.left)
	for i := range all {
		verdict := message.Verdict{Verb: message.VerbKeep}
		switch {
		case b.ended[i]:
			continue
		case decided[i]:
			verdict = b.verdicts[i]
		}
		settlement.Claim.Messages = append(settlement.Claim.Messages, all[i])
		settlement.Verdicts = append(settlement.Verdicts, verdict)
	}
	b.settling.settlement = settlement
}

// end notes that messages are settled, or not ours to settle.
func (b *batch) end(indices []int) {
	for _, i := range indices {
		b.ended[i] = true
	}
	b.left -= len(indices)
}

// mayPublish reports whether a publish may start: the lease and the claim last, and the
// claim is confirmed.
func (b *batch) mayPublish(now time.Duration) bool {
	return !b.unconfirmed && now < b.lease.until && now < b.deadline
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
