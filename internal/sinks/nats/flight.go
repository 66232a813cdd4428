package nats

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

var (
	// errNoAnswer is the outcome of a message that was handed over and not answered.
	errNoAnswer = errors.New("no answer within the publish timeout")
	// errSilent ends a connection on which nothing at all is heard.
	errSilent = errors.New("nothing received within the publish timeout")
)

// state is how far a message has come.
type state uint8

const (
	unsent      state = iota
	sent              // handed to the client, no answer yet
	noResponder       // refused, and asked why
	settled           // its outcome is reported
)

// entry is what a flight knows of one message.
type entry struct {
	state  state
	number uint64        // of the messages handed to the connection
	since  time.Duration // from when on its time counts, on the link's clock
}

// flight is one call to Publish. The caller's goroutine hands over, those of
// the connection bring the answers; each outcome is reported when it is known.
type flight struct {
	link     *link
	batch    []message.Message
	chains   *sinks.Chains
	outcomes *sinks.Outcomes
	wake     chan struct{} // of 1: there is something to hand over, or nothing left

	mu      sync.Mutex
	over    bool // the batch belongs to the caller again
	entries []entry
	ready   []int  // may be handed over, in this order
	left    int    // without an outcome
	checked string // a topic that is valid
}

func newFlight(l *link, batch []message.Message, outcomes *sinks.Outcomes) *flight {
	chains := sinks.NewChains(batch)
	return &flight{
		link: l, batch: batch, chains: chains, outcomes: outcomes, wake: make(chan struct{}, 1),
		entries: make([]entry, len(batch)), ready: chains.Heads(), left: len(batch),
	}
}

// begin ends the handing over of the message before, if that is one, and says
// which message is next. The caller holds the link's turn. A message counts as
// sent before it is: its answer may be quick.
func (f *flight) begin(before int) (i int, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.link.pace.clock()
	if before >= 0 {
		f.entries[before].since = now
	}
	for len(f.ready) > 0 && f.link.pace.waiting.Load() < inFlightMost {
		i, f.ready = f.ready[0], f.ready[1:]
		if err := f.check(f.batch[i].Topic); err != nil {
			f.settle(i, classify(err))
			continue
		}
		f.link.pace.handed++
		f.link.pace.waiting.Add(1)
		f.entries[i] = entry{state: sent, number: f.link.pace.handed, since: now}
		return i, true
	}
	return -1, false
}

// check refuses what no NATS server could take. Most topics are like the one before.
func (f *flight) check(topic string) error {
	if topic == f.checked && topic != "" {
		return nil
	}
	if err := message.CheckTopic(message.NATS, topic); err != nil {
		return err
	}
	f.checked = topic
	return nil
}

// leave notes that a message is not sent any more. It is called with f.mu held.
func (f *flight) leave(i int, to state) {
	if f.entries[i].state == sent {
		f.link.pace.waiting.Add(-1)
	}
	f.entries[i].state = to
}

// settle reports an outcome and decides about the messages behind it. It is
// called with f.mu held.
func (f *flight) settle(i int, outcome sinks.Outcome) {
	f.report(i, outcome)
	switch outcome.Class {
	case sinks.Unknown, sinks.Unavailable:
		outcome.Class = sinks.Unavailable
		for _, behind := range f.chains.Rest(i) {
			f.report(behind, outcome)
		}
	case sinks.Acknowledged, sinks.Permanent, sinks.Retryable:
		if next, ok := f.chains.Next(i); ok {
			f.ready = append(f.ready, next)
			f.signal()
		}
	}
	if f.left == 0 {
		f.signal()
	}
}

func (f *flight) report(i int, outcome sinks.Outcome) {
	f.leave(i, settled)
	f.left--
	f.outcomes.Report(i, outcome)
}

func (f *flight) signal() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// answered takes the server's answer, unless the message has an outcome.
func (f *flight) answered(i int, outcome sinks.Outcome) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over || i < 0 || i >= len(f.entries) {
		return
	}
	f.link.pace.reach(f.entries[i].number)
	if f.entries[i].state != sent {
		return
	}
	if errors.Is(outcome.Err, errNoResponders) {
		f.leave(i, noResponder)
		f.link.explain(f.batch[i].Topic, unexplained{f, i})
		return
	}
	f.settle(i, outcome)
}

// explained takes the reason why a message had no responders.
func (f *flight) explained(i int, outcome sinks.Outcome) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.over && f.entries[i].state == noResponder {
		f.settle(i, outcome)
	}
}

// refused takes the client's refusal of a message that it was to hand over.
func (f *flight) refused(i int, outcome sinks.Outcome) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.entries[i].state == sent {
		f.settle(i, outcome)
	}
}

// deny settles all messages of a subject that we may not publish to.
func (f *flight) deny(subject string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return
	}
	for i := range f.entries {
		if f.entries[i].state == sent && f.batch[i].Topic == subject {
			f.settle(i, classify(err))
		}
	}
}

// expire settles what was not answered in time. An error means that the
// connection is dead: the server has not even answered pings.
func (f *flight) expire() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.link
	now := l.pace.clock()
	for i := range f.entries {
		e := &f.entries[i]
		if e.state != sent {
			continue
		}
		e.since = l.pace.since(e.number, e.since)
		if now-e.since < l.timeout {
			continue
		}
		if l.socket.Load().silence() >= l.timeout {
			return errSilent
		}
		f.settle(i, classify(fmt.Errorf("subject %s: %w", f.batch[i].Topic, errNoAnswer)))
	}
	return nil
}

// end gives the rest their outcomes: what was handed over is Unknown, and what
// was not is Unavailable. Nothing of the flight is used after it.
func (f *flight) end(err error, whole bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	if f.left == 0 {
		return
	}
	unavailable := sinks.Outcome{Class: sinks.Unavailable, Reason: why(err), Err: err, Whole: whole}
	for i := range f.entries {
		outcome := unavailable
		switch f.entries[i].state {
		case settled:
			continue
		case sent:
			outcome.Class = sinks.Unknown
		case noResponder:
			outcome = classify(errNoResponders)
		case unsent:
		}
		f.report(i, outcome)
	}
}
