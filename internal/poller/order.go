package poller

import "sync"

// chain names the messages that must be published in due order (I15).
type chain struct{ key, topic string }

// order keeps the messages of a chain in due order across the batches of a
// shard. It knows, for each chain, the last batch that has messages of it: those
// of a later batch wait for what becomes of them. A batch that ends before an
// earlier one leaves the chain to that one. Only the shard's loop uses it;
// messages without a Key never touch it.
//
// Within one batch the sink keeps the order.
type order struct {
	holders map[chain]*batch
}

// precedence is which batches and messages come before those of a batch.
type precedence struct {
	isKeyed bool             // the batch has messages with a Key
	earlier map[chain]*batch // in the chains that other batches have messages of
	behind  []int            // messages that wait for those of earlier batches
}

// register notes the batch's chains, and which of its messages have to wait.
// Those that are parked in any case are not of the batch: they wait for nobody,
// and a batch that ends before an earlier one must not take its place.
func (o *order) register(b *batch) {
	var asked map[chain]bool
	parked := b.parked
	for i := range b.claim.Messages {
		m := &b.claim.Messages[i]
		if len(parked) > 0 && parked[0].index == i {
			parked = parked[1:]
			continue
		}
		if m.Key == "" {
			continue
		}
		if o.holders == nil {
			o.holders = make(map[chain]*batch)
		}
		b.precedence.isKeyed = true
		c := chain{m.Key, m.Topic}
		earlier := o.holders[c]
		o.holders[c] = b
		if earlier != nil && earlier != b {
			b.follow(c, earlier)
		}
		if earlier == b || earlier == nil {
			if asked[c] {
				b.precedence.behind = append(b.precedence.behind, i)
			}
			continue
		}
		if earlier.fates.watch(c, earlier, b) {
			if asked == nil {
				asked = make(map[chain]bool)
			}
			asked[c] = true
			b.precedence.behind = append(b.precedence.behind, i)
		}
	}
}

// forget drops a batch that has ended; live are the others.
func (o *order) forget(b *batch, live []*batch) {
	if !b.precedence.isKeyed {
		return
	}
	for i := range b.claim.Messages {
		m := &b.claim.Messages[i]
		c := chain{m.Key, m.Topic}
		switch {
		case m.Key == "" || o.holders[c] != b:
		case b.precedence.earlier[c] != nil:
			o.holders[c] = b.precedence.earlier[c]
		default:
			delete(o.holders, c)
		}
	}
	// Else batches that have ended would hang together for ever.
	for _, later := range live {
		for c, earlier := range later.precedence.earlier {
			if earlier == b {
				later.follow(c, b.precedence.earlier[c])
			}
		}
	}
}

// follow notes the batch before this one in a chain; nil is none.
func (b *batch) follow(c chain, earlier *batch) {
	if earlier == nil {
		delete(b.precedence.earlier, c)
		return
	}
	if b.precedence.earlier == nil {
		b.precedence.earlier = make(map[chain]*batch)
	}
	b.precedence.earlier[c] = earlier
}

// fate is what became of a message, as far as those behind it must know.
type fate uint8

const (
	fateOpen   fate = iota
	fatePassed      // the way is free: acknowledged, or refused by itself
	fateBroken      // it goes back to wait, and so must those behind it
)

// fates tells later batches what became of the messages of this one. It is
// safe for concurrent use.
type fates struct {
	mu      sync.Mutex
	all     []fate
	watches map[chain]*watch
	index   map[chain][]int // the messages of each chain, once somebody asked
	// inbox is what earlier batches have told this one.
	inbox []passage
}

// watch is a later batch that waits for a chain of this one.
type watch struct {
	left   int
	broken bool
	later  *batch
}

// passage says that the messages of a chain in the earlier batch have their
// fates, and whether one of them was broken.
type passage struct {
	chain  chain
	broken bool
}

// watch has later told when the chain's messages in this batch have their
// fates. It reports false where they have, and all have passed.
func (f *fates) watch(c chain, b, later *batch) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := &watch{later: later}
	for _, i := range f.indexed(b)[c] {
		switch f.all[i] {
		case fateOpen:
			w.left++
		case fateBroken:
			w.broken = true
		case fatePassed:
		}
	}
	if w.left > 0 {
		if f.watches == nil {
			f.watches = make(map[chain]*watch)
		}
		f.watches[c] = w
		return true
	}
	if w.broken {
		later.fates.tell(later, passage{c, true})
	}
	return w.broken
}

func (f *fates) indexed(b *batch) map[chain][]int {
	if f.index == nil {
		f.index = make(map[chain][]int, len(b.claim.Messages))
		for i := range b.claim.Messages {
			if m := &b.claim.Messages[i]; m.Key != "" {
				c := chain{m.Key, m.Topic}
				f.index[c] = append(f.index[c], i)
			}
		}
	}
	return f.index
}

// set notes what became of messages. Those that wait for the last of a chain
// are told.
func (f *fates) set(b *batch, indices []int, fate func(i int) fate) {
	var told map[*batch][]passage
	f.mu.Lock()
	for _, i := range indices {
		f.all[i] = fate(i)
		if len(f.watches) == 0 {
			continue
		}
		c := chain{b.claim.Messages[i].Key, b.claim.Messages[i].Topic}
		w := f.watches[c]
		if w == nil {
			continue
		}
		w.left--
		w.broken = w.broken || f.all[i] == fateBroken
		if w.left == 0 {
			delete(f.watches, c)
			if told == nil {
				told = make(map[*batch][]passage, 1)
			}
			told[w.later] = append(told[w.later], passage{c, w.broken})
		}
	}
	f.mu.Unlock()
	for later, passages := range told {
		later.fates.tell(later, passages...)
	}
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
