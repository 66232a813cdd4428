package kafka

import (
	"context"
	"fmt"
	"sync"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// submission is one call to Publish, until it returns.
type submission struct {
	batch    []message.Message
	outcomes *sinks.Outcomes
	encoding sync.WaitGroup // the requests that read the batch now

	// Guarded by Sink.mu.
	handed    []bool // by index: a request has had the message
	withdrawn bool   // no request may read the batch any more
}

// publication is one message of a submission, as it waits for its partition.
type publication struct {
	submission *submission
	index      int
	size       int // bytes, an upper bound
}

func (i publication) message() *message.Message { return &i.submission.batch[i.index] }

func newSubmission(batch []message.Message, outcomes *sinks.Outcomes) *submission {
	return &submission{batch: batch, outcomes: outcomes, handed: make([]bool, len(batch))}
}

func (c *submission) settleAll(indices []int, outcome sinks.Outcome) {
	for _, index := range indices {
		c.outcomes.Report(index, outcome)
	}
}

// settle reports the same outcome for all.
func settle(items []publication, outcome sinks.Outcome) {
	for _, i := range items {
		i.submission.outcomes.Report(i.index, outcome)
	}
}

// settleInOrder reports the outcome of a request: the broker has stored its messages one
// behind the other, from the place of the outcome on.
func settleInOrder(items []publication, outcome sinks.Outcome) {
	for _, i := range items {
		i.submission.outcomes.Report(i.index, outcome)
		outcome.Place.Number++
	}
}

// withdraw ends a submission whose ctx has ended: what is in no request yet is never
// sent, and the broker's answer to the others is not waited for.
func (s *Sink) withdraw(c *submission) {
	s.mu.Lock()
	c.withdrawn = true
	for _, sender := range s.senders {
		sender.drop(c)
	}
	s.mu.Unlock()
	// Encoding takes a millisecond and never blocks; after that the bytes belong to the caller.
	c.encoding.Wait()
	for index, handed := range c.handed {
		if handed {
			c.outcomes.Report(index, sinks.Failed(sinks.Unknown, sinks.ReasonTimeout,
				fmt.Errorf("not acknowledged in time: %w", context.DeadlineExceeded)))
		}
	}
	c.outcomes.Rest(notHandedOver())
}

// notHandedOver is the outcome of a message that was in no request.
func notHandedOver() sinks.Outcome {
	return sinks.Failed(sinks.Unavailable, sinks.ReasonTimeout,
		fmt.Errorf("not sent in time: %w", context.DeadlineExceeded))
}

// begin marks the messages as handed over, from which point on only the broker
// knows, and leaves out those whose submissions have returned. The messages' bytes may
// be read until encoded is called.
func (s *Sink) begin(batch []publication) (live []publication, encoded func()) {
	var submissions []*submission
	live = make([]publication, 0, len(batch))
	s.mu.Lock()
	for _, i := range batch {
		if i.submission.withdrawn {
			continue
		}
		i.submission.handed[i.index] = true
		if len(submissions) == 0 || submissions[len(submissions)-1] != i.submission {
			i.submission.encoding.Add(1)
			submissions = append(submissions, i.submission)
		}
		live = append(live, i)
	}
	s.mu.Unlock()
	return live, sync.OnceFunc(func() {
		for _, c := range submissions {
			c.encoding.Done()
		}
	})
}
