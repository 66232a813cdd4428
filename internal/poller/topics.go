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

// allowed decides about those messages whose topics the queue does not take any more, and
// returns the others; indices and what it returns are as for [runner.inTime]. A topic that
// was added a moment ago is not known yet, though producers may use it: so Redis is asked
// before a message goes to the dead letters.
func (r *runner) allowed(indices []int) (rest []int, none bool) {
	if r.services.config.Topics == nil {
		return indices, false
	}
	known, all := r.services.config.Topics.Known(), r.b.claim.Messages
	if !refusesAny(known, all) {
		return indices, false
	}
	now, err := r.services.redis.topics()
	return r.weed(indices, func(claimed *message.Claimed) (message.Verdict, bool) {
		switch {
		case known.Check(claimed.Topic) == nil:
			return message.Verdict{}, false
		case err != nil: // Released, it would be claimed again at once.
			return message.Verdict{Verb: message.VerbRetry, Delay: askAgain, Attempts: claimed.Attempts}, true
		}
		return judgeTopic(now, claimed)
	})
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

// weed decides about those messages that are not to be published, as judge says, and
// returns the others; indices may be nil for all, and so may be what it returns. none says
// that no message is left.
func (r *runner) weed(indices []int, judge func(*message.Claimed) (message.Verdict, bool)) (rest []int, none bool) {
	all := r.b.claim.Messages
	if indices == nil {
		indices = make([]int, len(all))
		for i := range all {
			indices[i] = i
		}
	}
	var out []int
	for _, i := range indices {
		if verdict, isOut := judge(&all[i]); isOut {
			r.docket.note(i, verdict, nil)
			out = append(out, i)
		} else {
			rest = append(rest, i)
		}
	}
	r.skip(out)
	if len(rest) == 0 && r.b.route != nil {
		r.services.routes.passed(r.b.route)
	}
	return rest, len(rest) == 0
}
