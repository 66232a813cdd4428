package poller

import "github.com/delaybridge/delaybridge/internal/message"

// inTime decides about those messages that are too late, and returns the others;
// indices may be nil for all, and so may be what it returns. none says that no message
// is left.
func (r *runner) inTime(indices []int) (rest []int, none bool) {
	all, now := r.b.claim.Messages, r.services.redis.clock(r.services.now())
	if !r.mayBeLate(all) {
		return indices, false
	}
	if indices == nil {
		indices = make([]int, len(all))
		for i := range all {
			indices[i] = i
		}
	}
	var late []int
	for _, i := range indices {
		if verdict, isLate := all[i].LateOr(r.services.config.Late).Judge(&all[i], now); isLate {
			r.docket.note(i, verdict, nil)
			late = append(late, i)
		} else {
			rest = append(rest, i)
		}
	}
	r.skip(late)
	if len(rest) == 0 && r.b.route != nil {
		r.services.routes.passed(r.b.route)
	}
	return rest, len(rest) == 0
}

// mayBeLate reports whether the queue or one of the messages says how late it may be.
func (r *runner) mayBeLate(all []message.Claimed) bool {
	if queues := r.services.config.Late.Then; queues != "" && queues != message.LatePublish {
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
