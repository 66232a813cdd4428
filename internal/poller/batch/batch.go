package batch

import (
	"slices"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/poller/routes"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// settleAfter is how long what was decided waits for the rest of its batch,
// giveBackAfter where messages go back: they may be others' predecessors.
const (
	settleAfter   = 100 * time.Millisecond
	giveBackAfter = 10 * time.Millisecond
)

// The pauses between two settles of a batch that had no answer.
const (
	settleInitial = 50 * time.Millisecond
	settleLimit   = 500 * time.Millisecond
)

// State is how far a message of a batch has come.
type State uint8

// The states of a message. Of each, a message has one at a time.
const (
	// Held: nothing is in its way.
	Held State = iota
	// Behind: it waits for earlier ones of its Key and Topic.
	Behind
	// Out: it is with the sink.
	Out
	// Hung: it has been with the sink for suspiciously long, and no longer counts in the window.
	Hung
	// Decided: it has a verdict.
	Decided
	// Lost: something panicked, and it will have none.
	Lost
	// Ended: it is settled, or not ours to settle.
	Ended
	states
)

// Lease is an unbroken time of holding a shard. Once it lapsed it never comes
// back: what was claimed under it may belong to somebody else by now.
type Lease struct{ until time.Duration }

// Renew prolongs the lease, which may have lapsed: then it is another one.
func (l *Lease) Renew(began, lasts time.Duration) *Lease {
	if began >= l.until {
		return &Lease{until: began + lasts}
	}
	l.until = began + lasts
	return l
}

// End says that somebody else holds the shard.
func (l *Lease) End() { l.until = 0 }

// Lasts reports whether it has not lapsed.
func (l *Lease) Lasts(now time.Duration) bool { return now < l.until }

// Claim is what is known of a claim that was granted.
type Claim struct {
	message.Claim
	Lease    *Lease
	Deadline time.Duration // when no publish may start any more
	// From is the closed route from whose slot it was claimed; nil if it was due and not
	// parked. IsProbe: it took nothing then, as far as was known.
	From    *routes.Route
	IsProbe bool
	// Parked are the messages whose routes were closed when it was claimed.
	Parked []routes.Parking
	// Durable: it has to be confirmed before anything is published. Unsure: earlier messages may wait where nobody
	// looks yet, so nothing is published at all.
	Durable, Unsure bool
}

// Batch is one claim from its answer to its end.
type Batch struct {
	Claim

	members      []member
	count        [states]int
	bytes        [states]int
	behind       []*segment
	passages     []passage
	publications []*Publication

	verdicts []message.Verdict
	since    time.Duration // when the first was decided that is not being settled
	goesBack bool          // one of them does
	settle   settleCall

	// confirming: the claim has to be confirmed yet. unconfirmed: it was not.
	confirming, unconfirmed bool
	// hasAnswered and hasPanicked are what the sink did.
	hasAnswered, hasPanicked bool
	// forsaken: its deadline is not extended any more. lost: it was reclaimed. abandoned:
	// it is not ours to settle any more.
	forsaken, lost, abandoned bool
}

// member is one message of a batch. It is a record: the batch writes it.
type member struct {
	state   State
	next    int32         // the one behind it in its segment
	weight  int           // what it counts for in the window
	segment *segment      // nil if it has no Key
	begins  segment       // if it is the first of one
	route   *routes.Route // to whose slot it goes; or that was closed because it hangs
}

// settleCall is a settle that is under way. It is a record: the batch writes it.
type settleCall struct {
	settlement message.Settlement
	indices    []int // none: none is
	began      time.Duration
	isCalled   bool          // it has no answer yet
	againAt    time.Duration // where it has failed
	pause      wait.Backoff
}

// Publication is one call of the sink: some of a batch's messages, in due order.
type Publication struct {
	Outcomes    *sinks.Outcomes
	Indices     []int // in the batch
	Began       time.Time
	hasReturned bool
}

// Return says that the sink has returned; err says why it has left outcomes out, if it knows.
func (c *Publication) Return(err error) {
	c.hasReturned = true
	select {
	case <-c.Outcomes.Done():
	default:
		c.Outcomes.Rest(noOutcome(err, len(c.Indices)))
	}
}

func newBatch(c Claim) *Batch {
	n := len(c.Messages)
	b := &Batch{
		Claim: c, confirming: c.Durable,
		members: make([]member, n), verdicts: make([]message.Verdict, n), count: [states]int{Held: n},
	}
	const envelope = 128 // what surrounds a message
	for i := range b.members {
		b.members[i].weight = c.Messages[i].Size() + envelope
		b.bytes[Held] += b.members[i].weight
	}
	return b
}

// Verdict is that on a message which has one.
func (b *Batch) Verdict(i int) *message.Verdict { return &b.verdicts[i] }

// Publications are the calls of the sink.
func (b *Batch) Publications() []*Publication { return b.publications }

// Open is how many messages have no verdict.
func (b *Batch) Open() int { return b.count[Held] + b.count[Behind] + b.count[Out] + b.count[Hung] }

// Left is how many are not settled.
func (b *Batch) Left() int { return len(b.members) - b.count[Ended] }

// Weight is what a message counts for in the window: its bytes, with what surrounds it.
func (b *Batch) Weight(i int) int { return b.members[i].weight }

// IsHung reports whether a message hangs.
func (b *Batch) IsHung(i int) bool { return b.members[i].state == Hung }

// Indices are the messages in a state, in due order.
func (b *Batch) Indices(state State) []int {
	indices := make([]int, 0, b.count[state])
	for i := range b.members {
		if b.members[i].state == state {
			indices = append(indices, i)
		}
	}
	return indices
}

func (b *Batch) confirm(isDurable bool) { b.confirming, b.unconfirmed = false, !isDurable }

// MayPublish reports whether a publish may start: the lease and the claim last, and no earlier message may
// be elsewhere, for order (I15), and the claim is confirmed.
func (b *Batch) MayPublish(now time.Duration) bool {
	return !b.unconfirmed && b.Lease.Lasts(now) && now < b.Deadline && !b.Unsure
}

// move records the new state of a message.
func (b *Batch) move(i int, to State) {
	m := &b.members[i]
	b.count[m.state], b.bytes[m.state] = b.count[m.state]-1, b.bytes[m.state]-m.weight
	b.count[to], b.bytes[to] = b.count[to]+1, b.bytes[to]+m.weight
	m.state = to
}

// HandOver records that messages are given to the sink. changed receives when outcomes come.
func (b *Batch) HandOver(indices []int, now time.Time, changed chan struct{}) *Publication {
	for _, i := range indices {
		b.move(i, Out)
	}
	c := &Publication{Outcomes: sinks.NewOutcomesTo(len(indices), changed), Indices: indices, Began: now}
	b.publications = append(b.publications, c)
	return c
}

// Answer records that the broker has dealt with a message. It reports whether it is the first.
func (b *Batch) Answer() (isFirst bool) {
	isFirst, b.hasAnswered = !b.hasAnswered, true
	return isFirst
}

// Panic records that the sink has panicked.
func (b *Batch) Panic() { b.hasPanicked = true }

// HasAnswered and HasPanicked report what the sink did.
func (b *Batch) HasAnswered() bool { return b.hasAnswered }

// HasPanicked reports whether the sink did.
func (b *Batch) HasPanicked() bool { return b.hasPanicked }

// decide records a verdict.
func (b *Batch) decide(i int, verdict message.Verdict, now time.Duration) {
	if b.count[Decided] == len(b.settle.indices) {
		b.since = now
	}
	b.goesBack = b.goesBack || goesBack(verdict.Verb)
	b.verdicts[i] = verdict
	b.move(i, Decided)
}

// SettleAt is when to write what is decided.
func (b *Batch) SettleAt() time.Duration {
	switch {
	case b.settle.isCalled || b.abandoned || b.count[Decided] == 0:
		return wait.Never
	case len(b.settle.indices) > 0:
		return b.settle.againAt
	case b.Open() == 0:
		return 0
	case b.goesBack:
		return b.since + giveBackAfter
	default:
		return b.since + settleAfter
	}
}

// Settle begins to write what is decided, or repeats what had no answer. The table says what Redis
// is to know of the routes whose messages are parked.
func (b *Batch) Settle(now time.Duration, rs *routes.Table) message.Settlement {
	w := &b.settle
	if w.isCalled = true; len(w.indices) > 0 {
		w.settlement.Repeated = true
		return w.settlement
	}
	w.indices, w.began = b.Indices(Decided), now
	w.settlement = message.Settlement{Claim: b.Claim.Claim, Verdicts: b.verdicts}
	if len(w.indices) < len(b.members) {
		b.settlePart()
	}
	if b.goesBack {
		b.goesBack, w.settlement.Parks = false, rs.Tell(b.parkRoutes(w.indices))
	}
	return w.settlement
}

// parkRoutes returns the routes to whose slots messages go.
func (b *Batch) parkRoutes(indices []int) (used []*routes.Route) {
	for _, i := range indices {
		if r := b.members[i].route; r != nil {
			used = append(used, r)
		}
	}
	return used
}

// settlePart writes the part of the claim that is not settled, with the verdicts that there are,
// and VerbKeep for what has none.
func (b *Batch) settlePart() {
	s := &b.settle.settlement
	s.Claim.Messages, s.Verdicts = make([]message.ClaimedMessage, 0, b.Left()), make([]message.Verdict, 0, b.Left())
	for i := range b.members {
		verdict := message.Verdict{Verb: message.VerbKeep}
		switch b.members[i].state {
		case Ended:
			continue
		case Decided:
			verdict = b.verdicts[i]
		default:
		}
		s.Claim.Messages, s.Verdicts = append(s.Claim.Messages, b.Messages[i]), append(s.Verdicts, verdict)
	}
}

// endSettle ends a settle.
func (b *Batch) endSettle() (w settleCall) {
	w, b.settle = b.settle, settleCall{}
	return w
}

// retrySettle plans the next try of a settle that had no answer. If only settling fails, the
// claim must end by itself some day: after that patience.
func (b *Batch) retrySettle(now, patience time.Duration, backoff func(initial, limit time.Duration) wait.Backoff) {
	w := &b.settle
	w.isCalled = false
	if now-w.began > patience {
		b.forsaken = true
	}
	if w.pause.Failures() == 0 {
		w.pause = backoff(settleInitial, settleLimit)
	}
	w.againAt = now + w.pause.Next()
}

// abandon leaves the claim to be reclaimed: it is not ours to settle any more.
func (b *Batch) abandon() { b.abandoned, b.settle = true, settleCall{} }

// lose records that a claim was reclaimed, which may be its own.
func (b *Batch) lose(token message.ClaimToken) { b.lost = b.lost || b.Token == token }

func (b *Batch) extendTo(deadline time.Duration) { b.Deadline = deadline }

// hasEnded reports whether nothing is left to do for it, and no call of the sink runs.
func (b *Batch) hasEnded() bool {
	isSettled := b.Left() == 0 || b.abandoned && b.Open() == 0
	isCalled := slices.ContainsFunc(b.publications, func(c *Publication) bool { return !c.hasReturned })
	return isSettled && !b.settle.isCalled && !isCalled
}
