package poller

import (
	"errors"
	"strings"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// keyRoute begins the name of the route on which messages wait for their key.
const keyRoute = "key "

// open returns the messages as they are published now, their bodies clear, and decides
// about those that do not open. indices, and those that it returns, may be nil for all of
// the batch. The batch's own messages stay sealed.
func (s *shard) open(b *batch, indices []int) (messages []message.Message, opened []int) {
	messages = b.numbered(indices)
	var causes []error // by place in messages; nil while all of them open
	for n := range messages {
		if err := s.openOne(&messages[n]); err != nil {
			if causes == nil {
				causes = make([]error, len(messages))
			}
			causes[n] = err
		}
	}
	if causes == nil {
		return messages, indices
	}
	return s.leaveSealed(b, messages, indices, causes)
}

func (s *shard) openOne(m *message.Message) error {
	id, isSealed := m.SealedBy()
	switch open := s.config.Sink.Open; {
	case !isSealed:
		return nil
	case open == nil:
		return message.UnknownKey(id)
	default:
		return open(m)
	}
}

// leaveSealed decides about the messages that have a cause not to be published, and
// returns the others, and their places in the batch.
func (s *shard) leaveSealed(b *batch, messages []message.Message, indices []int, causes []error) (opened []message.Message, at []int) {
	var left []int
	var outcomes []sinks.Outcome
	for n, cause := range causes {
		i := n
		if indices != nil {
			i = indices[n]
		}
		if cause == nil {
			opened, at = append(opened, messages[n]), append(at, i)
		} else {
			left, outcomes = append(left, i), append(outcomes, notOpened(&messages[n], cause))
		}
	}
	if len(opened) == 0 && b.route != nil { // Nor is any answer of the sink to tell the route on.
		s.routes.passed(b.route)
	}
	s.skip(b, left)
	for n, i := range left {
		s.decide(b, i, outcomes[n])
	}
	return opened, at
}

// notOpened is what becomes of a message whose body does not open. A key that is unknown may
// be added, so there is a route of that name: its messages wait there, and keep no others
// of their topics.
func notOpened(m *message.Message, cause error) sinks.Outcome {
	if !errors.Is(cause, message.ErrUnknownKey) {
		return sinks.Failed(sinks.Permanent, sinks.ReasonBrokenSeal, cause)
	}
	id, _ := m.SealedBy()
	outcome := sinks.Failed(sinks.Unavailable, sinks.ReasonUnknownKey, cause)
	outcome.Route = sinks.Route(keyRoute + id)
	return outcome
}

// isOfKey reports whether its messages wait for a key: they are of any topics.
func (r *route) isOfKey() bool { return strings.HasPrefix(string(r.name), keyRoute) }

// isOpening reports whether messages that are claimed from the route's slot are judged one by
// one, as those are that come due: their key is there, and their own routes and topics decide.
func (rs *routes) isOpening(r *route) bool {
	return r.isOfKey() && r.state == routeBack
}
