package sinks

import (
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// IsAnswer reports whether the broker dealt with the message by itself.
func (o *Outcome) IsAnswer() bool {
	return o.Class == Acknowledged || o.Class == Permanent || o.Class == Retryable
}

// Outcomes collects the outcomes of one batch: the sink reports each as soon as
// it is known, and one goroutine takes the new ones. It is safe for concurrent
// use. The first report of a message counts.
type Outcomes struct {
	changed chan struct{} // of 1
	done    chan struct{} // closed when all are reported

	mu      sync.Mutex
	isKnown []bool   // by index
	reports []Report // in order of arrival; it has room for the whole batch, so that taken reports do not move
	taken   int      // how many of them were taken
}

// Report is one outcome, the index of its message in the batch, and when it was reported.
type Report struct {
	Outcome
	Index int
	At    time.Time
}

// NewOutcomes returns the collector for a batch of n messages.
func NewOutcomes(n int) *Outcomes { return NewOutcomesTo(n, make(chan struct{}, 1)) }

// NewOutcomesTo is [NewOutcomes] with a channel, of 1, that several collectors
// may share: it receives when there is something to take in one of them.
func NewOutcomesTo(n int, changed chan struct{}) *Outcomes {
	return &Outcomes{changed: changed, done: make(chan struct{}), isKnown: make([]bool, n), reports: make([]Report, 0, n)}
}

// Report records the outcome of the i-th message, and says whether it was the first.
func (o *Outcomes) Report(i int, outcome Outcome) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.isKnown[i] {
		return false
	}
	o.isKnown[i] = true
	o.reports = append(o.reports, Report{Outcome: outcome, Index: i, At: time.Now()})
	if len(o.reports) == cap(o.reports) {
		close(o.done)
	}
	select {
	case o.changed <- struct{}{}:
	default:
	}
	return true
}

// Rest gives all messages that have no outcome yet the same one.
func (o *Outcomes) Rest(outcome Outcome) {
	for i := range o.isKnown {
		o.Report(i, outcome)
	}
}

// Changed receives when there is something to take; several reports may be one
// signal.
func (o *Outcomes) Changed() <-chan struct{} { return o.changed }

// Done is closed when all messages, of which there are some, have an outcome.
func (o *Outcomes) Done() <-chan struct{} { return o.done }

// Take returns the reports since the last call, in their order. They do not change any more.
// One goroutine calls it.
func (o *Outcomes) Take() []Report {
	o.mu.Lock()
	defer o.mu.Unlock()
	fresh := o.reports[o.taken:]
	o.taken = len(o.reports)
	return fresh
}

// Left is how many messages have no outcome yet.
func (o *Outcomes) Left() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return cap(o.reports) - len(o.reports)
}

// All are the outcomes by index; a message without one is Unknown.
func (o *Outcomes) All() []Outcome {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make([]Outcome, cap(o.reports))
	for _, r := range o.reports {
		all[r.Index] = r.Outcome
	}
	return all
}

// Chains is the order in which the messages of a batch may be handed over, for
// a broker that may store a later message and refuse an earlier one: of one Key
// and Topic, only one message at a time is without an answer. Messages without
// a Key wait for nobody. It never changes, so it is safe for concurrent use.
type Chains struct {
	heads []int
	next  []int // the following message of the same Key and Topic; 0 is none
}

// NewChains sorts the batch into chains.
func NewChains(batch []message.Message) *Chains {
	type chain struct{ key, topic string }
	c := &Chains{heads: make([]int, 0, len(batch)), next: make([]int, len(batch))}
	last := map[chain]int{}
	for i := range batch {
		id := chain{batch[i].Key, batch[i].Topic}
		if before, ok := last[id]; ok {
			c.next[before] = i
		} else {
			c.heads = append(c.heads, i)
		}
		if id.key != "" {
			last[id] = i
		}
	}
	return c
}

// Settle reports the outcome of the i-th message, and returns the next of its chain
// if that may be handed over now. If the message is Unknown or Unavailable, those
// behind it are Unavailable, and ok is false.
func (c *Chains) Settle(i int, outcome Outcome, outcomes *Outcomes) (next int, ok bool) {
	next = c.next[i]
	if outcomes.Report(i, outcome); outcome.IsAnswer() {
		return next, next != 0
	}
	outcome.Class = Unavailable
	for ; next != 0; next = c.next[next] {
		outcomes.Report(next, outcome)
	}
	return 0, false
}

// Heads are the messages that may be handed over at once, in the order of the batch.
func (c *Chains) Heads() []int { return c.heads }

// Next is the message that may be handed over when the i-th has an answer that
// leaves the way open: acknowledged, or refused by itself. ok is false if it
// was the last of its chain.
func (c *Chains) Next(i int) (next int, ok bool) { return c.next[i], c.next[i] != 0 }

// Rest returns the messages behind the i-th in its chain: if that one is Unknown
// or Unavailable, they must not be handed over.
func (c *Chains) Rest(i int) []int {
	var rest []int
	for next := c.next[i]; next != 0; next = c.next[next] {
		rest = append(rest, next)
	}
	return rest
}
