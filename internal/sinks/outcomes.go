package sinks

import (
	"sync"
	"sync/atomic"
	"time"
)

// Outcomes collects what becomes of the messages of one batch: the sink reports
// each outcome as soon as it is known, the caller takes those that are new. It
// is safe for concurrent use. The first report of a message counts.
type Outcomes struct {
	changed chan struct{} // of 1
	isNew   atomic.Bool   // something was reported, and not taken yet

	mu    sync.Mutex
	all   []Report
	known []bool
	fresh []int // reported, and not taken yet
	left  int
}

// Report is one outcome and when it was reported.
type Report struct {
	Outcome
	At time.Time
}

// NewOutcomes returns the collector for a batch of n messages.
func NewOutcomes(n int) *Outcomes { return NewOutcomesTo(n, make(chan struct{}, 1)) }

// NewOutcomesTo is [NewOutcomes] with a channel, of 1, that several collectors
// may share: it receives when there is something to take in one of them.
func NewOutcomesTo(n int, changed chan struct{}) *Outcomes {
	return &Outcomes{
		changed: changed, all: make([]Report, n), known: make([]bool, n), fresh: make([]int, 0, n), left: n,
	}
}

// Report notes the outcome of the i-th message, and says whether it was the first.
func (o *Outcomes) Report(i int, outcome Outcome) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	first := o.note(i, outcome, time.Now())
	if first {
		o.signal()
	}
	return first
}

// Rest gives all messages that have no outcome yet the same one.
func (o *Outcomes) Rest(outcome Outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	for i := range o.known {
		o.note(i, outcome, now)
	}
	o.signal()
}

func (o *Outcomes) note(i int, outcome Outcome, now time.Time) bool {
	if o.known[i] {
		return false
	}
	o.known[i] = true
	o.all[i] = Report{Outcome: outcome, At: now}
	o.fresh = append(o.fresh, i)
	o.isNew.Store(true)
	o.left--
	return true
}

func (o *Outcomes) signal() {
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

// Changed receives when there is something to take; several reports may be one
// signal.
func (o *Outcomes) Changed() <-chan struct{} { return o.changed }

// Take appends the messages whose outcomes were reported since the last call to
// indices, in the order of the reports.
func (o *Outcomes) Take(indices []int) []int {
	if !o.isNew.Swap(false) {
		return indices
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	indices = append(indices, o.fresh...)
	o.fresh = o.fresh[:0]
	return indices
}

// Taken is the outcome of a message that [Outcomes.Take] has returned: it does not
// change any more, so that reading it needs no lock.
func (o *Outcomes) Taken(i int) *Report { return &o.all[i] }

// At is the i-th message's outcome; known is false where there is none yet.
func (o *Outcomes) At(i int) (report Report, known bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all[i], o.known[i]
}

// Left is how many messages have no outcome yet.
func (o *Outcomes) Left() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.left
}

// All are the outcomes by index; a message without one is Unknown.
func (o *Outcomes) All() []Outcome {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make([]Outcome, len(o.all))
	for i := range all {
		all[i] = o.all[i].Outcome
	}
	return all
}
