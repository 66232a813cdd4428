package kafka

import (
	"errors"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/delaybridge/delaybridge/internal/sinks"
)

// sender delivers the messages of one partition, in order. Its goroutine
// runs while its queue has messages, and has at most one request at the broker.
type sender struct {
	sink      *Sink
	partition partition

	// Guarded by Sink.mu.
	queue []publication
	since time.Time // when the messages under way were taken
}

// run delivers the queue until it is empty.
func (s *sender) run() {
	for batch := s.take(); batch != nil; batch = s.take() {
		s.deliver(batch)
	}
}

// take returns the next messages for one request, in the order of their
// arrival. With none left it ends the sender and returns nil.
func (s *sender) take() []publication {
	s.sink.mu.Lock()
	defer s.sink.mu.Unlock()
	count, size := 0, 0
	for count < len(s.queue) {
		if size += s.queue[count].size; size > maxRequestSize && count > 0 {
			break
		}
		count++
	}
	if count == 0 {
		delete(s.sink.senders, s.partition)
		s.sink.closeIfIdle()
		return nil
	}
	batch := s.queue[:count:count]
	s.queue = s.queue[count:]
	s.since = time.Now()
	return batch
}

// stuck reports whether what was taken last has been under way for long. A
// sender that is not there has nothing under way. Callers hold Sink.mu.
func (s *sender) stuck(now time.Time) bool {
	return s != nil && !s.since.IsZero() && now.Sub(s.since) > stuckAfter
}

// drop takes the messages of a submission out of the queue. Callers hold Sink.mu.
func (s *sender) drop(c *submission) {
	s.queue = slices.DeleteFunc(s.queue, func(i publication) bool { return i.submission == c })
}

// deliver hands messages over in order and reports the outcome of each. If one fails, what
// was queued after it would overtake it, so it fails, too. It returns that outcome, because of
// which nothing more of the batch may be sent.
func (s *sender) deliver(batch []publication) (blocked *sinks.Outcome) {
	sent, reply := s.send(batch)
	switch {
	case len(sent) == 0:
		return nil
	case len(reply.refused) > 0:
		refused, rest := reply.split(sent)
		settle(refused, reply.outcome)
		if len(rest) == 0 {
			return nil
		}
		return s.deliver(rest)
	case reply.divisible && len(sent) > 1:
		half := len(sent) / 2
		if blocked := s.deliver(sent[:half]); blocked != nil {
			settle(sent[half:], overtaking(*blocked))
			return blocked
		}
		return s.deliver(sent[half:])
	}
	outcome := s.located(reply.outcome)
	s.sink.failures.note(s.partition, isFailure(outcome))
	outcome.Place.Partition = int32(s.partition.number)
	if !isFailure(outcome) {
		settleInOrder(sent, outcome)
		return nil
	}
	queued := s.takeAll() // Before the outcome is reported, so that what a caller publishes after it is not held back.
	settleInOrder(sent, outcome)
	settle(queued, overtaking(outcome))
	return &outcome
}

// located names the partition as the route of a failure, if it is not the
// topic or the whole cluster that failed.
func (s *sender) located(outcome sinks.Outcome) sinks.Outcome {
	topical := errors.Is(outcome.Err, kafka.UnknownTopicOrPartition) || errors.Is(outcome.Err, kafka.TopicAuthorizationFailed)
	if isFailure(outcome) && !outcome.Whole && !topical {
		outcome.Route = s.partition.route()
	}
	return outcome
}

// takeAll empties the queue.
func (s *sender) takeAll() []publication {
	s.sink.mu.Lock()
	defer s.sink.mu.Unlock()
	queue := s.queue
	s.queue = nil
	return queue
}
