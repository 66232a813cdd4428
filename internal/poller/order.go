package poller

import (
	"sync"
	"sync/atomic"
)

// chain names the messages that must be published in due order (I15).
type chain struct{ key, topic string }

// order keeps the messages of a chain in due order across the batches of a
// shard. It knows the last batch that has messages of each chain: those of a later
// batch wait for what becomes of them. A segment leaves the chain when its batch has
// ended, or before that where its messages wait again: whoever is claimed from then on
// is claimed with them, in due order. What leaves before an earlier segment leaves the
// chain to that one. Only the shard's loop uses it; messages without a Key never touch it.
//
// Within one batch the sink keeps the order.
type order struct {
	last map[chain]*segment
}

// segment is the part of a chain that one batch has.
type segment struct {
	batch *batch
	// isBehind: its messages wait for those of the earlier segment. The runner of the
	// batch owns it.
	isBehind bool
	// first and end are the first and the last of its messages; between them it goes
	// by fates.next.
	first, end int32

	// The loop's own: the segments before and behind it, and whether it has left the chain.
	earlier, later *segment
	hasLeft        bool

	// Guarded by the batch's fates.
	open    int32    // messages without a fate
	away    int32    // of those that go back to wait: not there yet
	broken  bool     // one of them goes back to wait
	waiting *segment // is told when all have their fates
}

// register notes the batch's chains, and which of its messages have to wait.
// Those that are parked in any case are not of the batch: they wait for nobody,
// and a batch that ends before an earlier one must not take its place.
func (o *order) register(b *batch) {
	parked := b.parked
	for i := range b.claim.Messages {
		if len(parked) > 0 && parked[0].index == i {
			parked = parked[1:]
			continue
		}
		if m := &b.claim.Messages[i]; m.Key != "" {
			o.enter(b, i, chain{m.Key, m.Topic})
		}
	}
	for _, p := range b.parked { // But who waits for the others of its chain learns of it.
		m := &b.claim.Messages[p.index]
		if s := o.last[chain{m.Key, m.Topic}]; s != nil && s.batch == b {
			b.fates.of[p.index] = s
			s.open++
		}
	}
}

// enter notes a message of a chain.
func (o *order) enter(b *batch, i int, c chain) {
	before := o.last[c]
	if before != nil && before.batch == b {
		b.fates.extend(before, i)
		return
	}
	if o.last == nil {
		o.last = make(map[chain]*segment)
	}
	s := b.fates.begin(b, i)
	o.last[c] = s
	if before == nil {
		return
	}
	s.earlier, before.later = before, s
	if before.keepsBack(s) {
		s.isBehind = true
		b.fates.behind = append(b.fates.behind, s)
	}
}

// forget drops a batch that has ended.
func (o *order) forget(b *batch) {
	for i, s := range b.fates.of {
		if s != nil && int(s.first) == i { // Each once.
			o.leave(s)
		}
	}
}

// leave takes a segment out of its chain.
func (o *order) leave(s *segment) {
	if s.hasLeft {
		return
	}
	s.hasLeft = true
	switch {
	case s.later != nil:
		s.later.earlier = s.earlier
	case s.earlier != nil:
		o.last[s.chain()] = s.earlier
	default:
		delete(o.last, s.chain())
	}
	if s.earlier != nil {
		s.earlier.later = s.later
	}
}

// departures are segments whose messages all have their fates, and wait again where
// they were to. It is safe for concurrent use.
type departures struct {
	isAny    atomic.Bool
	mu       sync.Mutex
	segments []*segment
}

func (d *departures) add(segments []*segment) {
	if len(segments) == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.segments = append(d.segments, segments...)
	d.isAny.Store(true)
}

func (d *departures) take() (segments []*segment) {
	if !d.isAny.Load() {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	segments, d.segments = d.segments, nil
	d.isAny.Store(false)
	return segments
}

func (s *segment) chain() chain {
	m := &s.batch.claim.Messages[s.first]
	return chain{m.Key, m.Topic}
}

// keepsBack reports whether the messages of the next segment have to wait for those
// of this one, and has it told of their fates. Where they all have passed, it need not.
func (s *segment) keepsBack(next *segment) bool {
	f := &s.batch.fates
	f.mu.Lock()
	isOpen, isBroken := s.open > 0, s.broken
	if isOpen {
		s.waiting = next
	}
	f.mu.Unlock()
	if !isOpen && isBroken {
		next.batch.fates.tell(next.batch, passage{next, true})
	}
	return isOpen || isBroken
}

// fate is what became of a message, as far as those behind it must know.
type fate uint8

const (
	fatePassed fate = iota // the way is free: acknowledged, or refused by itself
	fateBroken             // it goes back to wait, and so must those behind it
)

// fates are a batch's segments: what its messages wait for, and what those of later
// batches are told. A batch without a Key has none. It is safe for concurrent use.
type fates struct {
	of     []*segment // by message; nil where it has no Key
	next   []int32    // by message: the one behind it in its segment
	behind []*segment // those that have to wait
	slab   []segment  // for the next ones; it never grows, there are pointers into it

	mu sync.Mutex
	// inbox is what earlier batches have told this one.
	inbox []passage
}

// slabSize is how many segments are allocated at a time.
const slabSize = 32

// passage says that the messages in front of a segment have their fates, and
// whether one of them was broken.
type passage struct {
	segment *segment
	broken  bool
}

// begin makes a segment of a message.
func (f *fates) begin(b *batch, i int) *segment {
	if f.of == nil {
		n := len(b.claim.Messages)
		f.of, f.next = make([]*segment, n), make([]int32, n)
	}
	if len(f.slab) == cap(f.slab) {
		f.slab = make([]segment, 0, slabSize)
	}
	f.slab = append(f.slab, segment{batch: b, first: int32(i), end: int32(i), open: 1})
	s := &f.slab[len(f.slab)-1]
	f.of[i] = s
	return s
}

// extend puts a message behind those of a segment.
func (f *fates) extend(s *segment, i int) {
	f.next[s.end] = int32(i)
	f.of[i], s.end = s, int32(i)
	s.open++
}

// appendTo appends the messages of a segment to indices.
func (f *fates) appendTo(indices []int, s *segment) []int {
	for i := s.first; ; i = f.next[i] {
		indices = append(indices, int(i))
		if i == s.end {
			return indices
		}
	}
}

// set notes what became of messages. Those that wait for the last of a segment
// are told. It returns the segments of which nothing else is under way, but for those
// that passed: these keep nobody.
func (f *fates) set(indices []int, fate func(i int) fate) (departed []*segment) {
	if f.of == nil {
		return nil
	}
	var told []passage
	f.mu.Lock()
	for _, i := range indices {
		s := f.of[i]
		if s == nil {
			continue
		}
		s.open--
		if fate(i) == fateBroken {
			s.broken = true
			s.away++
		}
		if s.open == 0 && s.broken && s.away == 0 {
			departed = append(departed, s)
		}
		if s.open == 0 && s.waiting != nil {
			told = append(told, passage{s.waiting, s.broken})
			s.waiting = nil
		}
	}
	f.mu.Unlock()
	for len(told) > 0 {
		b, n := told[0].segment.batch, 1
		for n < len(told) && told[n].segment.batch == b {
			n++
		}
		b.fates.tell(b, told[:n]...)
		told = told[n:]
	}
	return departed
}

// back notes that messages wait again which were to, and returns the segments of which
// nothing else is under way.
func (f *fates) back(indices []int, fate func(i int) fate) (departed []*segment) {
	if f.of == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, i := range indices {
		s := f.of[i]
		if s == nil || fate(i) != fateBroken {
			continue
		}
		if s.away--; s.away == 0 && s.open == 0 {
			departed = append(departed, s)
		}
	}
	return departed
}

func (f *fates) tell(b *batch, passages ...passage) {
	f.mu.Lock()
	f.inbox = append(f.inbox, passages...)
	f.mu.Unlock()
	signal(b.changed)
}

// take returns what earlier batches have told since the last call.
func (f *fates) take() []passage {
	f.mu.Lock()
	defer f.mu.Unlock()
	inbox := f.inbox
	f.inbox = nil
	return inbox
}
