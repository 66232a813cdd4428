package nats

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
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

// entry is what a call knows of one message.
type entry struct {
	state  state
	number uint64        // of the messages handed to the connection
	since  time.Duration // from when on its time counts, on the connection's clock
}

// call is one of Publish. The caller's goroutine hands over, those of
// the connection bring the answers; each outcome is reported when it is known.
type call struct {
	connection *connection
	batch      []message.Message
	chains     *sinks.Chains
	outcomes   *sinks.Outcomes
	wake       chan struct{} // of 1: there is something to hand over, or nothing left

	mu      sync.Mutex
	over    bool // the batch belongs to the caller again
	entries []entry
	ready   []int  // may be handed over, in this order
	left    int    // without an outcome
	checked string // a topic that is valid
}

func newCall(l *connection, batch []message.Message, outcomes *sinks.Outcomes) *call {
	chains := sinks.NewChains(batch)
	return &call{
		connection: l, batch: batch, chains: chains, outcomes: outcomes, wake: make(chan struct{}, 1),
		entries: make([]entry, len(batch)), ready: chains.Heads(), left: len(batch),
	}
}

// begin ends the handing over of the message before, if that is one, and says
// which message is next. The caller holds the connection's turn. A message counts as
// sent before it is: its answer may be quick.
func (c *call) begin(before int) (i int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.connection.pace.clock()
	if before >= 0 {
		c.entries[before].since = now
	}
	for len(c.ready) > 0 && c.connection.pace.waiting.Load() < inFlightMost {
		i, c.ready = c.ready[0], c.ready[1:]
		if err := c.check(c.batch[i].Topic); err != nil {
			c.settle(i, classify(err))
			continue
		}
		c.connection.pace.handed++
		c.connection.pace.waiting.Add(1)
		c.entries[i] = entry{state: sent, number: c.connection.pace.handed, since: now}
		return i, true
	}
	return -1, false
}

// check refuses what no NATS server could take. Most topics are like the one before.
func (c *call) check(topic string) error {
	if topic == c.checked && topic != "" {
		return nil
	}
	if err := message.CheckTopic(message.NATS, topic); err != nil {
		return err
	}
	c.checked = topic
	return nil
}

// leave notes that a message is not sent any more. It is called with c.mu held.
func (c *call) leave(i int, to state) {
	if c.entries[i].state == sent {
		c.connection.pace.waiting.Add(-1)
	}
	c.entries[i].state = to
}

// settle reports an outcome and decides about the messages behind it. It is
// called with c.mu held.
func (c *call) settle(i int, outcome sinks.Outcome) {
	c.report(i, outcome)
	switch outcome.Class {
	case sinks.Unknown, sinks.Unavailable:
		outcome.Class = sinks.Unavailable
		for _, behind := range c.chains.Rest(i) {
			c.report(behind, outcome)
		}
	case sinks.Acknowledged, sinks.Permanent, sinks.Retryable:
		if next, ok := c.chains.Next(i); ok {
			c.ready = append(c.ready, next)
			c.signal()
		}
	}
	if c.left == 0 {
		c.signal()
	}
}

func (c *call) report(i int, outcome sinks.Outcome) {
	c.leave(i, settled)
	c.left--
	c.outcomes.Report(i, outcome)
}

func (c *call) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// answered takes the server's answer, unless the message has an outcome.
func (c *call) answered(i int, outcome sinks.Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || i < 0 || i >= len(c.entries) {
		return
	}
	c.connection.pace.reach(c.entries[i].number)
	if c.entries[i].state != sent {
		return
	}
	if errors.Is(outcome.Err, errNoResponders) {
		c.leave(i, noResponder)
		c.connection.explain(c.batch[i].Topic, unexplained{c, i})
		return
	}
	c.settle(i, outcome)
}

// explained takes the reason why a message had no responders.
func (c *call) explained(i int, outcome sinks.Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over && c.entries[i].state == noResponder {
		c.settle(i, outcome)
	}
}

// refused takes the client's refusal of a message that it was to hand over.
func (c *call) refused(i int, outcome sinks.Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries[i].state == sent {
		c.settle(i, outcome)
	}
}

// unanswered are the messages of a subject that were handed over and have no answer.
func (c *call) unanswered(subject string) (indices []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return nil
	}
	for i := range c.entries {
		if c.entries[i].state == sent && c.batch[i].Topic == subject {
			indices = append(indices, i)
		}
	}
	return indices
}

// deny settles messages that the server has denied.
func (c *call) deny(indices []int, outcome sinks.Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, i := range indices {
		if !c.over && c.entries[i].state == sent {
			c.settle(i, outcome)
		}
	}
}

// expire settles what was not answered in time. An error means that the
// connection is dead: the server has not even answered pings.
func (c *call) expire() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.connection
	now := l.pace.clock()
	for i := range c.entries {
		e := &c.entries[i]
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
		l.denied.isBlurred.Store(true)
		c.settle(i, classify(fmt.Errorf("subject %s: %w", c.batch[i].Topic, errNoAnswer)))
	}
	return nil
}

// end gives the rest their outcomes: what was handed over is Unknown, and what
// was not is Unavailable. Nothing of the call is used after it.
func (c *call) end(err error, whole bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	if c.left == 0 {
		return
	}
	unavailable := sinks.Outcome{Class: sinks.Unavailable, Reason: why(err), Err: err, Whole: whole}
	for i := range c.entries {
		outcome := unavailable
		switch c.entries[i].state {
		case settled:
			continue
		case sent:
			c.connection.denied.isBlurred.Store(true)
			outcome.Class = sinks.Unknown
		case noResponder:
			outcome = classify(errNoResponders)
		case unsent:
		}
		c.report(i, outcome)
	}
}
