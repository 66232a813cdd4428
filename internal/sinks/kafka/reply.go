package kafka

import (
	"errors"
	"fmt"
	"slices"

	"github.com/segmentio/kafka-go"

	"github.com/delaybridge/delaybridge/internal/sinks"
)

// reply is the result of one request.
type reply struct {
	// outcome is that of each message; its Place is that of the first.
	outcome sinks.Outcome
	// refused are the positions of the messages for which the broker refused
	// the request; the others of it are not stored either.
	refused []int
	// divisible is set if a part of the request may be accepted.
	divisible bool
}

// newReply reads the answer to a request of n messages.
func newReply(answer produceResult, n int) reply {
	if answer.err == nil {
		r := reply{outcome: sinks.Acked()}
		if answer.first >= 0 {
			r.outcome.Place = sinks.Place{IsKnown: true, Number: uint64(answer.first)}
		}
		return r
	}
	r := reply{outcome: classify(answer.err)}
	for _, code := range aboutRecords {
		if errors.Is(answer.err, code) {
			r.divisible = true
			r.refused = slices.DeleteFunc(answer.refused, func(position int) bool { return position < 0 || position >= n })
		}
	}
	return r
}

// aboutRecords are the codes by which a broker refuses a request because of
// some of its records, or because it has too many.
var aboutRecords = []kafka.Error{
	kafka.MessageSizeTooLarge, kafka.RecordListTooLarge, kafka.InvalidRecord, kafka.InvalidTimestamp, kafka.InvalidMessage,
}

// failure is the reply if there was none from the broker.
func (s *Sink) failure(err error) reply { return reply{outcome: s.outcome(err)} }

// settling reports whether the broker itself said that it is not, or not yet, the
// one to ask, as for a moment after a topic was made or a leader moved.
func (r reply) settling() bool {
	err := r.outcome.Err
	return errors.Is(err, kafka.NotLeaderForPartition) || errors.Is(err, kafka.UnknownTopicOrPartition)
}

// split separates the messages that were refused from the others.
func (r reply) split(sent []publication) (refused, rest []publication) {
	for position, i := range sent {
		if slices.Contains(r.refused, position) {
			refused = append(refused, i)
		} else {
			rest = append(rest, i)
		}
	}
	return refused, rest
}

// isFailure reports whether what follows must not be sent, and the partition may have moved.
func isFailure(outcome sinks.Outcome) bool {
	return outcome.Class == sinks.Unknown || outcome.Class == sinks.Unavailable
}

// overtaking is the outcome of a message that was held back because an earlier
// one of its partition failed so.
func overtaking(blocked sinks.Outcome) sinks.Outcome {
	blocked.Class = sinks.Unavailable
	blocked.Err = fmt.Errorf("not sent after an earlier failure: %w", blocked.Err)
	return blocked
}

// outcome classifies an error, and recognises the sink's own end as its cause.
func (s *Sink) outcome(err error) sinks.Outcome {
	outcome := classify(err)
	if s.open.Err() != nil && isFailure(outcome) {
		outcome.Reason, outcome.Whole = sinks.ReasonClosed, true
	}
	return outcome
}
