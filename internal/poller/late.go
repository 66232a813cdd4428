package poller

import (
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/message"
)

// judgeLate is the verdict on a message that is too late to be published. A message
// of which a copy may be out is not dropped but published again: nobody could say
// that it was dropped.
func judgeLate(limit message.Late, claimed *message.Claimed, now time.Time) (verdict message.Verdict, isLate bool) {
	if !limit.IsOver(claimed.DueAt, now) {
		return message.Verdict{}, false
	}
	// The reason is the same for all, for who redrives by reason; its times say how late it was.
	reason := "late: more than " + brief(limit.After)
	if limit.Then == message.LateDrop {
		return message.Verdict{Verb: message.VerbDrop, Attempts: claimed.Attempts, Reason: reason}, claimed.Attempts.MaybeOut == 0
	}
	return deadLetter(claimed.Attempts, claimed.Attempts.MaybeOut > 0, reason), true
}

// brief is a duration without its zeros at the end.
func brief(d time.Duration) string {
	text := d.Round(time.Millisecond).String()
	if d >= time.Minute {
		text = d.Round(time.Second).String()
		for _, zero := range []string{"m0s", "h0m"} {
			if whole, isZero := strings.CutSuffix(text, zero); isZero {
				text = whole + zero[:1]
			}
		}
	}
	return text
}

// inTime decides about those messages that are too late, and returns the others; see
// [runner.weed].
func (r *runner) inTime(indices []int) (rest []int, none bool) {
	if !r.mayBeLate(r.b.claim.Messages) {
		return indices, false
	}
	now := r.services.redis.clock(r.services.now())
	return r.weed(indices, func(claimed *message.Claimed) (message.Verdict, bool) {
		return judgeLate(claimed.LateOr(r.services.config.Late), claimed, now)
	})
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
