package poller

import (
	"context"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// askAgain is how long a message waits of which nobody can say whether it is allowed.
const askAgain = time.Second

// Topics tells which topics the queue takes. It is safe for concurrent use.
type Topics interface {
	// Known are those that were in force some seconds ago. It asks nobody.
	Known() message.Topics
	// Ask returns those in force now.
	Ask(ctx context.Context) (message.Topics, error)
}

// toldTopics decides about those messages whose topics the queue does not take any more,
// and hands the others over. A topic that was added a moment ago is not known yet, though
// producers may use it: so Redis is asked before a message goes to the dead letters.
func (s *shard) toldTopics(now time.Duration, b *batch, indices []int, topics message.Topics, err error) {
	defer s.recovered(b)
	s.now = now
	known := s.config.Topics.Known()
	rest, none := s.weed(b, indices, func(claimed *message.Claimed) (message.Verdict, bool) {
		switch {
		case known.Check(claimed.Topic) == nil:
			return message.Verdict{}, false
		case err != nil: // Released, it would be claimed again at once.
			return message.Verdict{Verb: message.VerbRetry, Delay: askAgain, Attempts: claimed.Attempts}, true
		}
		return judgeTopic(topics, claimed)
	})
	switch {
	case none:
	case s.mayPublish(b):
		s.handOver(b, rest)
	default:
		s.giveBack(b, rest)
	}
}

func refusesAny(topics message.Topics, all []message.Claimed) bool {
	for i := range all {
		if topics.Check(all[i].Topic) != nil {
			return true
		}
	}
	return false
}

// judgeTopic is the verdict on a message of a topic that the queue does not take.
func judgeTopic(topics message.Topics, claimed *message.Claimed) (verdict message.Verdict, isRefused bool) {
	if err := topics.Check(claimed.Topic); err != nil {
		return deadLetter(claimed.Attempts, claimed.Attempts.MaybeOut > 0, "not allowed: "+err.Error()), true
	}
	return message.Verdict{}, false
}
