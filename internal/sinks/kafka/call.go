package kafka

import (
	"context"
	"fmt"
	"sync"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// call is one call to Publish, until it returns.
type call struct {
	batch    []message.Message
	outcomes *sinks.Outcomes
	encoding sync.WaitGroup // the requests that read the batch now

	// Guarded by Sink.mu.
	handed    []bool // by index: a request has had the message
	withdrawn bool   // no request may read the batch any more
}

// item is one message of a call, as it waits for its partition.
type item struct {
	call  *call
	index int
	size  int // bytes, an upper bound
}

func (i item) message() *message.Message { return &i.call.batch[i.index] }

func newCall(batch []message.Message, outcomes *sinks.Outcomes) *call {
	return &call{batch: batch, outcomes: outcomes, handed: make([]bool, len(batch))}
}

func (c *call) settleAll(indices []int, outcome sinks.Outcome) {
	for _, index := range indices {
		c.outcomes.Report(index, outcome)
	}
}

// settle reports the same outcome for all.
func settle(items []item, outcome sinks.Outcome) {
	for _, i := range items {
		i.call.outcomes.Report(i.index, outcome)
	}
}

// settleInOrder reports the outcome of a request: the broker has stored its messages one
// behind the other, from the place of the outcome on.
func settleInOrder(items []item, outcome sinks.Outcome) {
	for _, i := range items {
		i.call.outcomes.Report(i.index, outcome)
		outcome.Place.Number++
	}
}

// withdraw ends a call whose ctx has ended: what no request has had is never
// sent, and the broker's answer to the others is not waited for.
func (s *Sink) withdraw(c *call) {
	s.mu.Lock()
	c.withdrawn = true
	for _, sender := range s.senders {
		sender.drop(c)
	}
	s.mu.Unlock()
	// Encoding takes a millisecond and waits for nobody; the bytes are the caller's after that.
	c.encoding.Wait()
	for index, handed := range c.handed {
		if handed {
			c.outcomes.Report(index, sinks.Failed(sinks.Unknown, sinks.ReasonTimeout,
				fmt.Errorf("not acknowledged in time: %w", context.DeadlineExceeded)))
		}
	}
	c.outcomes.Rest(notHandedOver())
}

// notHandedOver is the outcome of a message that no request has had.
func notHandedOver() sinks.Outcome {
	return sinks.Failed(sinks.Unavailable, sinks.ReasonTimeout,
		fmt.Errorf("not sent in time: %w", context.DeadlineExceeded))
}

// begin marks the messages as handed over, from which point on only the broker
// knows, and leaves out those whose calls have returned. The messages' bytes may
// be read until encoded is called.
func (s *Sink) begin(batch []item) (live []item, encoded func()) {
	var calls []*call
	live = make([]item, 0, len(batch))
	s.mu.Lock()
	for _, i := range batch {
		if i.call.withdrawn {
			continue
		}
		i.call.handed[i.index] = true
		if len(calls) == 0 || calls[len(calls)-1] != i.call {
			i.call.encoding.Add(1)
			calls = append(calls, i.call)
		}
		live = append(live, i)
	}
	s.mu.Unlock()
	return live, sync.OnceFunc(func() {
		for _, c := range calls {
			c.encoding.Done()
		}
	})
}
