package redis

import (
	"context"
	"sync"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// The path of a batch: Publish puts the first message of each chain into a queue. The senders of
// the queue take the waiting messages of all submissions, one pipeline at a time. When a pipeline
// is answered, its outcomes are reported, and the next messages of the chains are queued.

const (
	// sendersMost limits the pipelines of a queue that are under way at a time.
	sendersMost = 4
	// pipelineBytes and pipelineMessages bound a pipeline. One message may be larger.
	pipelineBytes    = 64 << 10
	pipelineMessages = 500
	// framing is about how many bytes a command has beyond the message's size.
	framing = 512
)

// submission is one call of Publish.
type submission struct {
	batch    []message.Message
	chains   *sinks.Chains
	outcomes *sinks.Outcomes
	encoding sync.WaitGroup // pipelines that are being made of the batch

	// The sink's mu guards these.
	isOver  bool
	flights []*flight // by index: the pipeline that the message is in
}

// publication is one message of a submission.
type publication struct {
	submission *submission
	index      int
}

func (i publication) message() *message.Message { return &i.submission.batch[i.index] }

// queue has the messages that wait for a pipeline: of all topics, or in a Cluster of one
// topic, so that a hanging node delays nothing on other nodes.
type queue struct {
	name    string
	waiting []publication
	senders int
}

// Publish implements [sinks.Sink].
func (s *Sink) Publish(ctx context.Context, batch []message.Message, outcomes *sinks.Outcomes) {
	if len(batch) == 0 {
		return
	}
	c := &submission{batch: batch, chains: sinks.NewChains(batch), outcomes: outcomes, flights: make([]*flight, len(batch))}
	if ctx.Err() == nil {
		heads := make([]publication, len(c.chains.Heads()))
		for n, index := range c.chains.Heads() {
			heads[n] = publication{c, index}
		}
		s.submit(heads) //nolint:contextcheck // A pipeline is of several submissions.
	}
	select {
	case <-outcomes.Done():
		return
	default:
	}
	select {
	case <-outcomes.Done():
	case <-ctx.Done():
		s.end(c, sinks.Outcome{Reason: why(ctx.Err()), Err: ctx.Err()})
	case <-s.root.Done():
		s.end(c, sinks.Outcome{Reason: sinks.ReasonClosed, Err: errClosed, Whole: true})
	}
	c.encoding.Wait()
}

// end gives the rest of a submission its outcomes: messages that were handed over are Unknown;
// the others are Unavailable and are no longer handed over.
func (s *Sink) end(c *submission, outcome sinks.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.isOver = true
	for i, f := range c.flights {
		if f != nil && !f.withdraw() {
			outcome.Class = sinks.Unknown
			c.outcomes.Report(i, outcome)
		}
	}
	outcome.Class = sinks.Unavailable
	c.outcomes.Rest(outcome)
}

// submit queues messages, whose turn it is in their chains.
func (s *Sink) submit(items []publication) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range items {
		for ok := !i.submission.isOver; ok; {
			err := message.CheckTopic(message.Redis, i.message().Topic)
			if err == nil {
				q := s.queueOf(i.message().Topic)
				if q.waiting = append(q.waiting, i); len(q.waiting) == 1 { // Else a sender comes for it, too.
					s.open(q)
				}
				break
			}
			i.index, ok = i.submission.chains.Settle(i.index, s.classify(err, false), i.submission.outcomes)
		}
	}
}

// queueOf is the queue of a topic. It is called with s.mu held.
func (s *Sink) queueOf(topic string) *queue {
	name := ""
	if s.isCluster {
		name = topic
	}
	q := s.queues[name]
	if q == nil {
		q = &queue{name: name}
		s.queues[name] = q
	}
	return q
}

// open starts a sender for the waiting messages, unless there are enough. It is called with s.mu held.
func (s *Sink) open(q *queue) {
	if q.senders < sendersMost && s.root.Err() == nil {
		q.senders++
		s.senders.Go(func() { s.run(q) })
	}
}

// run sends one pipeline after another, until nothing waits.
func (s *Sink) run(q *queue) {
	f := &flight{sink: s}
	for s.take(q, f) {
		f.encode()
		f.send()
		s.land(q, f)
	}
}

// take moves the messages of one pipeline from the queue to the flight. It returns
// false if nothing waits, which ends the sender.
func (s *Sink) take(q *queue, f *flight) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.reset()
	taken, bytes := 0, 0
	for ; taken < len(q.waiting) && len(f.items) < pipelineMessages; taken++ {
		i := q.waiting[taken]
		if i.submission.isOver {
			continue
		}
		if bytes += framing + i.message().Size(); bytes > pipelineBytes && len(f.items) > 0 {
			break
		}
		f.items = append(f.items, i)
		i.submission.flights[i.index] = f
		i.submission.encoding.Add(1)
	}
	if q.waiting = append(q.waiting[:0], q.waiting[taken:]...); len(q.waiting) > 0 {
		s.open(q)
	}
	if len(f.items) > 0 {
		return true
	}
	if q.senders--; q.senders == 0 {
		delete(s.queues, q.name)
	}
	return false
}

// land reports the outcomes of a pipeline, and queues the next messages. If the connection
// itself has failed, messages that wait for another one would fare no better. The reports
// are made with s.mu held: a submission that ends meanwhile must not mistake messages
// about to be reported for messages that were not handed over.
func (s *Sink) land(q *queue, f *flight) {
	outcomes, failure := f.outcomes()
	s.submit(s.settle(q, f, outcomes, failure))
}

// settle returns the messages whose turn it is now.
func (s *Sink) settle(q *queue, f *flight, outcomes []sinks.Outcome, failure error) (next []publication) {
	s.mu.Lock()
	defer s.mu.Unlock()
	items := f.items
	for _, i := range items {
		i.submission.flights[i.index] = nil
	}
	if f.isWithdrawn() { // For a submission that is over; the others count as not taken.
		q.waiting = append(append([]publication{}, items...), q.waiting...)
		return nil
	}
	if failure != nil {
		outcome := s.classify(failure, false)
		for _, i := range q.waiting {
			items, outcomes = append(items, i), append(outcomes, outcome)
		}
		q.waiting = nil
	}
	for n, i := range items {
		if index, ok := i.submission.chains.Settle(i.index, outcomes[n], i.submission.outcomes); ok {
			next = append(next, publication{i.submission, index})
		}
	}
	return next
}
