package poller

import "github.com/delaybridge/delaybridge/internal/engine/message"

// inTime decides about those messages that are too late, and returns the others; see
// [runner.weed].
func (r *runner) inTime(indices []int) (rest []int, none bool) {
	if !r.mayBeLate(r.b.claim.Messages) {
		return indices, false
	}
	now := r.services.redis.clock(r.services.now())
	return r.weed(indices, func(claimed *message.Claimed) (message.Verdict, bool) {
		return claimed.LateOr(r.services.policy.Load().Late).Judge(claimed, now)
	})
}

// mayBeLate reports whether the queue or one of the messages says how late it may be.
func (r *runner) mayBeLate(all []message.Claimed) bool {
	if queues := r.services.policy.Load().Late.Then; queues != "" && queues != message.LatePublish {
		return true
	}
	for i := range all {
		if headers := all[i].Headers; len(headers) > 0 {
			if _, says := headers[message.HeaderLate]; says {
				return true
			}
		}
	}
	return false
}
