package poller

// chain names the messages that must be published in due order (I15).
type chain struct{ key, topic string }

// order keeps the messages of a chain in due order across the batches of a shard: those
// of a later batch wait for what becomes of the earlier ones. Within one batch the sink
// keeps the order. Messages without a Key never touch it.
//
// A segment stays in its chain for as long as one of its messages has no fate, or goes
// back to wait and is not there yet. Whoever is claimed after that is claimed with them,
// in due order, whatever else their batch still holds.
type order struct {
	last map[chain]*segment
	// departed may leave their chains once the claim is answered that has no answer now:
	// it may have been made before they were back.
	departed []*segment
}

// segment is the part of a chain that one batch has.
type segment struct {
	batch *batch
	// first and end are the first and the last of its messages; between them it goes
	// by segments.next.
	first, end int32
	// isBehind: its messages wait for those of the segment before it.
	isBehind bool

	open    int32 // messages without a fate
	away    int32 // of those that go back to wait: not there yet
	broken  bool  // one of them goes back to wait
	hasLeft bool  // the chain

	earlier, later *segment // of the chain
	waiting        *segment // is told when all have their fates
}

// fate is what became of a message, as far as those behind it must know.
type fate uint8

const (
	fatePassed fate = iota // the way is free: acknowledged, or refused by itself
	fateBroken             // it goes back to wait, and so must those behind it
)

// passage says that the messages in front of a segment have their fates, and
// whether one of them was broken.
type passage struct {
	segment *segment
	broken  bool
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
			b.segments.of[p.index] = s
			s.open++
		}
	}
}

// enter notes a message of a chain.
func (o *order) enter(b *batch, i int, c chain) {
	before := o.last[c]
	if before != nil && before.batch == b {
		b.segments.extend(before, i)
		return
	}
	if o.last == nil {
		o.last = make(map[chain]*segment)
	}
	s := b.segments.begin(b, i)
	o.last[c] = s
	if before == nil {
		return
	}
	s.earlier, before.later = before, s
	switch {
	case before.open > 0:
		before.waiting, s.isBehind = s, true
	case before.broken: // It is on its way back.
		s.isBehind = true
		b.told = append(b.told, passage{s, true})
	}
	if s.isBehind {
		b.behind = append(b.behind, s)
	}
}

// set notes what became of a message. Who waited for the last of its segment is told.
func (o *order) set(b *batch, i int, f fate, isPending bool) (told *batch) {
	s := b.segments.at(i)
	if s == nil {
		return nil
	}
	s.open--
	if f == fateBroken {
		s.broken = true
		s.away++
	}
	if s.open > 0 {
		return nil
	}
	if next := s.waiting; next != nil {
		s.waiting = nil
		told = next.batch
		told.told = append(told.told, passage{next, s.broken})
	}
	o.depart(s, isPending)
	return told
}

// back notes that a message waits again that was to.
func (o *order) back(b *batch, i int, isPending bool) {
	if s := b.segments.at(i); s != nil {
		s.away--
		o.depart(s, isPending)
	}
}

// depart takes a segment out of its chain of which nothing is under way any more. isPending:
// a claim has no answer yet.
func (o *order) depart(s *segment, isPending bool) {
	switch {
	case s.open > 0 || s.away > 0:
	case isPending && s.broken:
		o.departed = append(o.departed, s)
	default:
		o.leave(s)
	}
}

// answered lets those leave that had to wait for a claim's answer.
func (o *order) answered() {
	for _, s := range o.departed {
		o.leave(s)
	}
	clear(o.departed)
	o.departed = o.departed[:0]
}

// forget drops what a batch that has ended has left in its chains: its claim was lost.
func (o *order) forget(b *batch) {
	for i, s := range b.segments.of {
		if s != nil && int(s.first) == i { // Each once.
			o.leave(s)
		}
	}
}

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

func (s *segment) chain() chain {
	m := &s.batch.claim.Messages[s.first]
	return chain{m.Key, m.Topic}
}

// segments are those of one batch; none where it has no Key.
type segments struct {
	of   []*segment // by message; nil where it has no Key
	next []int32    // by message: the one behind it in its segment
	slab []segment  // for the next ones; it never grows, there are pointers into it
}

// slabSize is how many segments are allocated at a time.
const slabSize = 32

func (l *segments) at(i int) *segment {
	if l.of == nil {
		return nil
	}
	return l.of[i]
}

// begin makes a segment of a message.
func (l *segments) begin(b *batch, i int) *segment {
	if l.of == nil {
		n := len(b.claim.Messages)
		l.of, l.next = make([]*segment, n), make([]int32, n)
	}
	if len(l.slab) == cap(l.slab) {
		l.slab = make([]segment, 0, slabSize)
	}
	l.slab = append(l.slab, segment{batch: b, first: int32(i), end: int32(i), open: 1})
	s := &l.slab[len(l.slab)-1]
	l.of[i] = s
	return s
}

// extend puts a message behind those of a segment.
func (l *segments) extend(s *segment, i int) {
	l.next[s.end] = int32(i)
	l.of[i], s.end = s, int32(i)
	s.open++
}

// appendTo appends the messages of a segment to indices.
func (l *segments) appendTo(indices []int, s *segment) []int {
	for i := s.first; ; i = l.next[i] {
		indices = append(indices, int(i))
		if i == s.end {
			return indices
		}
	}
}
