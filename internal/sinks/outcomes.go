package sinks

import (
	"sync"
	"sync/atomic"
	"time"
)

// Outcomes collects what becomes of the messages of one batch: the sink reports
// each outcome as soon as it is known, one goroutine takes those that are new. It
// is safe for concurrent use. The first report of a message counts.
type Outcomes struct {
	changed chan struct{} // of 1
	done    chan struct{} // closed when all are reported

	mu       sync.Mutex
	all      []Report     // by index; At is zero while there is none
	order    []int        // of the reports, as many as there are
	reported atomic.Int64 // so many of order are written, and do not change any more

	taken int // so many of order were taken
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
	return &Outcomes{changed: changed, done: make(chan struct{}), all: make([]Report, n), order: make([]int, n)}
}

// Report notes the outcome of the i-th message, and says whether it was the first.
func (o *Outcomes) Report(i int, outcome Outcome) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.all[i].At.IsZero() {
		return false
	}
	o.all[i] = Report{Outcome: outcome, At: time.Now()}
	o.order[o.reported.Load()] = i
	if o.reported.Add(1) == int64(len(o.all)) {
		close(o.done)
	}
	o.signal()
	return true
}

// Rest gives all messages that have no outcome yet the same one, and signals a change
// even where there are none.
func (o *Outcomes) Rest(outcome Outcome) {
	for i := 0; i < len(o.all) && o.Left() > 0; i++ {
		o.Report(i, outcome)
	}
	o.signal()
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

// Done is closed when all messages, of which there are some, have an outcome.
func (o *Outcomes) Done() <-chan struct{} { return o.done }

// Take appends the messages whose outcomes were reported since the last call to
// indices, in the order of the reports. One goroutine calls it.
func (o *Outcomes) Take(indices []int) []int {
	fresh := o.order[o.taken:o.reported.Load()]
	o.taken += len(fresh)
	return append(indices, fresh...)
}

// Taken is the outcome of a message that [Outcomes.Take] has returned: it does not
// change any more, so that reading it needs no lock.
func (o *Outcomes) Taken(i int) *Report { return &o.all[i] }

// At is the i-th message's outcome; known is false where there is none yet.
func (o *Outcomes) At(i int) (report Report, known bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all[i], !o.all[i].At.IsZero()
}

// Left is how many messages have no outcome yet.
func (o *Outcomes) Left() int { return len(o.all) - int(o.reported.Load()) }

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
