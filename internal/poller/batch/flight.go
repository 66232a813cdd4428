// Package batch knows what a shard has in flight: what claims have taken, until it is settled.
//
// What a claim took is a [Batch]. A message of it is in one [State] at a time:
//
//	         its Key is free           one outcome each      written to Redis, in parts:
//	Behind ─────────────────► Held ──► Out ────────► Decided ─────────────────────► Ended
//	   │ an earlier batch      │        │ no answer    ▲  ▲     100 ms after the first
//	   │ has its Key           │        └────► Hung ───┘  │
//	   └───────────────────────┴──────────────────────────┘ given back, refused
//
// So a message that hangs holds up no other: what was acknowledged is settled, and the rest of the
// claim lives on under its token. Nor does it keep its Key for longer than what it is behind.
//
// A [Flight] has all batches of a shard, and keeps the messages of a Key and Topic, a chain, in
// due order across them (I15): those of a later batch wait for the results of the earlier ones.
// Within one batch the sink keeps the order. The part of a chain that one batch has is a
// segment. It stays in its chain for as long as one of its messages has no verdict, or goes back
// to wait and is not there yet. Whoever is claimed after that is claimed with them, in due
// order, whatever else their batch still holds. A claim that has no answer yet may have been
// made before that: so a segment of which something went back stays until it is answered.
//
// What becomes of a segment behind another one of its chain:
//
//	some have no verdict | one goes back → the later ones
//	yes                  | *             → wait
//	no                   | no            → may be published
//	no                   | yes           → go back, too
//
// And when a segment of which all have their verdicts leaves its chain:
//
//	one goes back | it is on its way | a claim has no answer → leaves
//	no            | *                | *                     → now
//	yes           | yes              | *                     → once it is there
//	yes           | no               | no                    → now
//	yes           | no               | yes                   → once it is answered
//
// It takes what was claimed, decided and settled, and returns what may be published, and what
// to settle. It reads no clock, does no I/O and starts no goroutine.
package batch

import (
	"slices"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/poller/routes"
)

// chain names the messages that must be published in due order (I15).
type chain struct{ key, topic string }

// segment is the part of a chain that one batch has. It is a record: the flight writes it.
type segment struct {
	chain chain
	batch *Batch
	// first and end are the first and the last of its messages; between them it goes
	// by member.next.
	first, end int32
	// isBehind: its messages wait for those of the segment before it.
	isBehind bool

	open    int32 // messages without a verdict
	away    int32 // those that go back to wait: not there yet
	broken  bool  // one of them goes back to wait
	hasLeft bool  // the chain

	earlier, later *segment // of the chain
}

// passage says that the messages in front of a segment have their verdicts, and
// whether one of them was broken.
type passage struct {
	segment *segment
	broken  bool
}

// Flight is what a shard has in flight. It is not safe for concurrent use.
type Flight struct {
	routes   *routes.Table
	live     []*Batch           // in the order of their claims
	notified []*Batch           // whose segments have news of earlier messages
	last     map[chain]*segment // of each chain
	// departed may leave their chains once the claim is answered that has no answer now.
	departed []*segment
	isAsked  bool // a claim has no answer yet
	isOlder  bool // since the last claim was asked something has come back: its answer may be older

	// Of messages that go back to what is due: how many are not there yet, the last of their
	// due times, in milliseconds (0 is none), and when the first of them can be claimed.
	returning int
	upTo      int64
	claimable time.Duration
}

// NewFlight returns a flight without batches. It reports parked messages to the routes.
func NewFlight(rs *routes.Table) *Flight {
	return &Flight{routes: rs, last: make(map[chain]*segment), claimable: wait.Never}
}

// BeginClaim says that a claim is made, EndClaim that it was answered, or was given up.
func (f *Flight) BeginClaim() { f.isAsked, f.isOlder = true, false }

// EndClaim lets those segments leave that had to wait for a claim's answer.
func (f *Flight) EndClaim() {
	f.isAsked = false
	for _, s := range f.departed {
		if !s.hasLeft { // It may have been forgotten.
			f.leave(s)
		}
	}
	f.departed = nil
}

// Add takes a claim. It decides the messages whose route is closed; they are no predecessors, since
// whatever is claimed of their chains before they are in their slots is parked, too. It holds those
// of the rest that need not wait for earlier messages.
func (f *Flight) Add(c Claim, now time.Duration) *Batch {
	b := newBatch(c)
	for _, p := range c.Parked {
		f.Decide(b, p.Index, message.Verdict{Verb: message.VerbPark, Attempts: b.Messages[p.Index].Attempts}, p.Route, now)
	}
	for i := range c.Messages {
		if m := &c.Messages[i]; m.Key != "" && b.members[i].state == Held {
			f.enter(b, int32(i), chain{m.Key, m.Topic}) //nolint:gosec // some hundreds
		}
	}
	f.live = append(f.live, b)
	return b
}

// enter notes a message of a chain.
func (f *Flight) enter(b *Batch, i int32, c chain) {
	before := f.last[c]
	if before != nil && before.batch == b {
		b.extend(before, i)
		return
	}
	s := &b.members[i].begins
	*s = segment{chain: c, batch: b, first: i, end: i, open: 1}
	b.members[i].segment, f.last[c] = s, s
	if before != nil {
		f.follow(s, before)
	}
}

// extend puts a message behind those of a segment.
func (b *Batch) extend(s *segment, i int32) {
	b.members[s.end].next, b.members[i].segment, s.end = i, s, i
	s.open++
	if s.isBehind {
		b.move(int(i), Behind)
	}
}

// follow puts a segment behind another in its chain.
func (f *Flight) follow(s, before *segment) {
	s.earlier, before.later = before, s
	if before.open == 0 && !before.broken {
		return
	}
	s.batch.wait(s)
	if before.open == 0 { // It is on its way back.
		f.tell(s, true)
	}
}

// wait has a segment of one message wait for the one before it.
func (b *Batch) wait(s *segment) {
	s.isBehind, b.behind = true, append(b.behind, s)
	b.move(int(s.first), Behind)
}

// Next is the next batch of which messages had to wait for earlier ones: those that are ready
// now, and those that are to be given back, since an earlier one goes back, too, or their
// route was closed, see GiveBack. If b is nil, there is none.
func (f *Flight) Next() (b *Batch, ready, back []int) {
	for len(f.notified) > 0 {
		b = f.notified[len(f.notified)-1]
		f.notified = f.notified[:len(f.notified)-1]
		if b.confirming || b.Open() == 0 { // It comes again once it is confirmed.
			continue
		}
		for _, p := range b.hear() {
			switch {
			case !p.segment.isBehind:
			case p.broken:
				back = b.free(p.segment, back)
			default:
				ready = b.free(p.segment, ready)
			}
		}
		slices.Sort(ready) // In due order.
		return b, ready, back
	}
	return nil, nil, nil
}

// free ends a segment's wait, and appends its messages to indices.
func (b *Batch) free(s *segment, indices []int) []int {
	s.isBehind = false
	for i := s.first; ; i = b.members[i].next {
		if b.members[i].state == Behind {
			b.move(int(i), Held)
			indices = append(indices, int(i))
		}
		if i == s.end {
			return indices
		}
	}
}

// isClosed reports whether the route of a segment's messages was closed since the
// claim. Messages claimed from a slot are probes, and are published all the same.
func (f *Flight) isClosed(s *segment) bool {
	return s.batch.From == nil && f.routes.IsClosed(&s.batch.Messages[s.first].Message)
}

// Confirmed says whether a batch's claim is as durable as it has to be.
func (f *Flight) Confirmed(b *Batch, isDurable bool) {
	b.confirm(isDurable)
	if len(b.passages) > 0 {
		f.notified = append(f.notified, b)
	}
}

// GiveBack has what waits for earlier messages go back: of routes that are closed now, or all.
func (f *Flight) GiveBack(all bool) {
	for _, b := range f.live {
		for _, s := range b.behind {
			if s.isBehind && (all || f.isClosed(s)) {
				f.tell(s, true)
			}
		}
	}
}

// tell has a segment hear of what it is behind.
func (f *Flight) tell(s *segment, broken bool) {
	if isFirst := s.batch.tell(passage{s, broken}); isFirst {
		f.notified = append(f.notified, s.batch)
	}
}

func (b *Batch) tell(p passage) (isFirst bool) {
	b.passages = append(b.passages, p)
	return len(b.passages) == 1
}

// hear returns what happened since the last call.
func (b *Batch) hear() (told []passage) {
	told, b.passages = b.passages, nil
	return told
}

// Decide records the verdict on a message; in is its route if it is parked.
func (f *Flight) Decide(b *Batch, i int, verdict message.Verdict, in *routes.Route, now time.Duration) {
	b.decide(i, verdict, now)
	if goesBack(verdict.Verb) {
		f.depart(b, i, in)
	}
	if s := b.members[i].segment; s != nil {
		if s.open--; s.open == 0 {
			f.pass(s)
		}
	}
}

// goesBack reports whether a message waits again in its old place, and so must those behind it.
func goesBack(verb message.Verb) bool { return verb == message.VerbRelease || verb == message.VerbPark }

// depart records that a message goes back to wait.
func (f *Flight) depart(b *Batch, i int, in *routes.Route) {
	m := &b.members[i]
	m.route = in
	if in == nil {
		f.returning++
		f.Returned(b.Messages[i].DueAt)
	} else {
		b.verdicts[i].Verb, b.verdicts[i].Slot = message.VerbPark, in.Slot()
	}
	if m.segment != nil {
		m.segment.broken = true
		m.segment.away++
	}
}

// arrive records that it is there, and can be claimed again from then on.
func (f *Flight) arrive(b *Batch, i int, now time.Duration) {
	m := &b.members[i]
	if m.route != nil {
		f.routes.Parked(m.route)
	} else {
		f.returning--
		f.isOlder = true
		f.claimable = min(f.claimable, now)
	}
	if m.segment != nil {
		if m.segment.away--; m.segment.open == 0 {
			f.pass(m.segment)
		}
	}
}

// pass tells the segment behind of one that has all its verdicts, and takes it out of its chain
// if none of it is on its way.
func (f *Flight) pass(s *segment) {
	if s.later != nil && s.later.isBehind {
		f.tell(s.later, s.broken)
	}
	switch {
	case s.away > 0:
	case f.isAsked && s.broken:
		f.departed = append(f.departed, s)
	default:
		f.leave(s)
	}
}

func (f *Flight) leave(s *segment) {
	if s.hasLeft = true; s.earlier == nil && s.later == nil {
		delete(f.last, s.chain)
		return
	}
	if s.later != nil {
		s.later.earlier = s.earlier
	} else {
		f.last[s.chain] = s.earlier
	}
	if s.earlier != nil {
		s.earlier.later = s.later
	}
}

// Hang records that a message is with the sink for too long, and that its route was closed for it.
func (f *Flight) Hang(b *Batch, i int, in *routes.Route) {
	b.move(i, Hung)
	b.members[i].route = in
}

// HangEnded records that the outcome of a message that hung is known, or given up.
func (f *Flight) HangEnded(b *Batch, i int, isAnswer bool, now time.Duration) {
	f.routes.HangEnded(b.members[i].route, isAnswer, now)
	b.members[i].route = nil
}

// Hanging returns the messages of a batch that are with the sink for longer than the limit
// though it answers others, and were not known to hang.
func (b *Batch) Hanging(isLate func(since time.Time) bool) (hanging []int) {
	for _, c := range b.publications {
		if c.hasReturned || !isLate(c.Began) {
			continue
		}
		for _, i := range c.Indices {
			if b.members[i].state == Out {
				hanging = append(hanging, i)
			}
		}
	}
	return hanging
}

// Tally counts what was settled, by verb.
type Tally struct {
	Verbs [message.VerbDrop + 1]int
	// Suspected are copies that are out, or may be, while an earlier one may be.
	Suspected int
}

// EndSettle takes the answer to a settle, and returns the messages. isDone: Redis has done what
// was decided; else the claim was not ours any more. isRepeated: an earlier call may have
// done it.
func (f *Flight) EndSettle(b *Batch, isDone bool, now time.Duration) (indices []int, n Tally, isRepeated bool) {
	w := b.endSettle()
	return w.indices, f.close(b, w.indices, isDone, now), w.settlement.Repeated
}

// RetrySettle handles a settle without an answer. It is repeated for as long as the claim may
// still be ours: until it was reclaimed. Where only settling fails, the claim must end by
// itself some day: after its patience. It reports false if the claim is given up.
func (f *Flight) RetrySettle(b *Batch, isOver bool, now, patience time.Duration, backoff func(initial, limit time.Duration) wait.Backoff) (goesOn bool) {
	b.retrySettle(now, patience, backoff)
	if b.lost || isOver {
		b.abandon()
		return false
	}
	return true
}

// close ends messages that are decided, in Redis too where isDone.
func (f *Flight) close(b *Batch, indices []int, isDone bool, now time.Duration) (n Tally) {
	for _, i := range indices {
		b.move(i, Ended)
		verdict := &b.verdicts[i]
		n.Verbs[verdict.Verb]++
		if verdict.Published && b.Messages[i].Attempts.MaybeOut > 0 {
			n.Suspected++
		}
		if isDone && verdict.Verb == message.VerbRetry {
			f.claimable = min(f.claimable, now+verdict.Delay)
		}
		if goesBack(verdict.Verb) {
			f.arrive(b, i, now)
		}
	}
	if b.From != nil {
		f.routes.TakeBack(b.From, len(indices))
	}
	return n
}

// Fail gives a batch up with which something panicked: its claim is left to be reclaimed.
func (f *Flight) Fail(b *Batch, now time.Duration) {
	b.abandon()
	for i := range b.members {
		if b.members[i].state >= Decided {
			continue
		}
		if b.IsHung(i) {
			f.HangEnded(b, i, false, now)
		}
		b.move(i, Lost)
		if s := b.members[i].segment; s != nil { // It never arrives, and stays until it is forgotten.
			if s.open, s.away, s.broken = s.open-1, s.away+1, true; s.open == 0 {
				f.pass(s)
			}
		}
	}
}

// Abandon leaves all claims to be reclaimed that are not being settled: the store is not called
// any more.
func (f *Flight) Abandon() {
	for _, b := range f.live {
		if !b.settle.isCalled {
			b.abandon()
		}
	}
}

// Lose records that a claim was reclaimed.
func (f *Flight) Lose(token message.ClaimToken) {
	for _, b := range f.live {
		b.lose(token)
	}
}

// Prune forgets the batches that have ended, and returns them. Those of which something is left
// were lost.
func (f *Flight) Prune() (ended []*Batch) {
	f.live = slices.DeleteFunc(f.live, func(b *Batch) bool {
		isOver := b.hasEnded() && (b.Left() == 0 || !f.isAsked) // Of a lost claim: it may be behind it.
		if isOver {
			ended = append(ended, b)
		}
		return isOver
	})
	return ended
}

// Forget gives up what a claim that was lost has left. It returns what was decided.
func (f *Flight) Forget(b *Batch, now time.Duration) (decided []int) {
	decided = b.Indices(Decided)
	f.close(b, decided, false, now)
	if left := b.Left(); left > 0 && b.From != nil { // What a panic has left without a verdict.
		f.routes.TakeBack(b.From, left)
	}
	for i := range b.members {
		if s := b.members[i].segment; s != nil && int(s.first) == i && !s.hasLeft { // Each once.
			f.leave(s)
		}
	}
	return decided
}

// Live are the batches, in the order of their claims.
func (f *Flight) Live() []*Batch { return f.live }

// Load is how much is in flight.
type Load struct {
	Batches    int
	Confirming int // of these, those that are not confirmed yet
	Working    int // and those of which somebody may hope for something
	Messages   int // that somebody may hope for: not those of probes, nor those that hang
	// InWindow are the messages that are with the sink or about to be, but for those that
	// hang, and Bytes theirs. What waits behind others is neither.
	InWindow, Bytes int
}

// Load counts what is in flight.
func (f *Flight) Load() (l Load) {
	l.Batches = len(f.live)
	for _, b := range f.live {
		l.InWindow += b.count[Held] + b.count[Out]
		l.Bytes += b.bytes[Held] + b.bytes[Out]
		if open := b.Open() - b.count[Hung]; open > 0 && !b.IsProbe {
			l.Working++
			l.Messages += open
		}
		if b.confirming {
			l.Confirming++
		}
	}
	return l
}

// Tokens are the claims whose deadlines are to be extended.
func (f *Flight) Tokens() (tokens []message.ClaimToken) {
	for _, b := range f.live {
		if !b.forsaken {
			tokens = append(tokens, b.Token)
		}
	}
	return tokens
}

// Extend notes the new deadlines of claims, which a request of then has listed.
func (f *Flight) Extend(tokens []message.ClaimToken, began, lasts time.Duration) {
	for _, b := range f.live { // Both in the order of their numbers.
		for len(tokens) > 0 && tokens[0].Number < b.Token.Number {
			tokens = tokens[1:] // It has ended.
		}
		if len(tokens) > 0 && b.Token == tokens[0] && began < b.Deadline {
			b.extendTo(began + lasts)
		}
	}
}

// Returned notes the due time of a message that goes back to what is due.
func (f *Flight) Returned(due time.Time) { f.upTo = max(f.upTo, 1, due.UnixMilli()) }

// IsReturning reports whether messages are on their way back. Nothing is claimed until they are
// there, or the parts of a Key could hold each other up for ever.
func (f *Flight) IsReturning() bool { return f.returning > 0 }

// KeepsSlots reports whether something that went back may not have been claimed again. While
// it is due, no slot is claimed from: it may belong in front of what is in a slot. A clock
// that is set back makes it due later, and what is in the slots with it.
func (f *Flight) KeepsSlots() bool { return f.upTo != 0 }

// KeepsSlot reports whether what a claim took from a slot may have to be published after what
// went back.
func (f *Flight) KeepsSlot(claim *message.Claim) bool {
	return f.KeepsSlots() && !claim.NextDue.IsZero() && !claim.NextDue.After(claim.Now)
}

// Saw takes the answer of a claim: all that went back may have been claimed again.
func (f *Flight) Saw(claim *message.Claim) {
	if f.returning == 0 && !f.isOlder && (claim.NextDue.IsZero() || claim.NextDue.UnixMilli() > f.upTo) {
		f.upTo = 0
	}
}

// Claimable is when something that went back can be claimed since the last call.
func (f *Flight) Claimable() (at time.Duration) {
	at, f.claimable = f.claimable, wait.Never
	return at
}

// Chains is how many chains have something under way.
func (f *Flight) Chains() int { return len(f.last) + len(f.departed) }
