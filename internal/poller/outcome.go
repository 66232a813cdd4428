package poller

import (
	"time"

	"github.com/delaybridge/delaybridge/internal/sinks"
)

// take decides about the messages of a call whose outcomes have come. The
// answers come first: whether the broker has answered anything decides what a
// missing answer means.
func (r *runner) take(c *call) {
	fresh := c.outcomes.Take(nil)
	if len(fresh) == 0 {
		return
	}
	c.left -= len(fresh)
	indices := make([]int, len(fresh))
	var failed []int
	a := tally{call: c}
	for k, n := range fresh {
		indices[k] = c.at(n)
		report := c.outcomes.Taken(n)
		c.hear(r.services, r.b, n, report.Outcome)
		r.services.observe(&r.b.claim.Messages[indices[k]], c.began, report)
		if !isAnswer(report.Outcome) {
			failed = append(failed, n)
			continue
		}
		r.answered(&a, n, report)
	}
	r.flush(&a)
	for _, n := range failed {
		r.failed(c, n)
	}
	r.decided(indices)
}

// tally sums up answers for the window.
type tally struct {
	call            *call
	messages, bytes int
	took            time.Duration
	late            int // answers to messages that have left the window
}

func (r *runner) answered(a *tally, n int, report *sinks.Report) {
	i := a.call.at(n)
	claimed := &r.b.claim.Messages[i]
	if a.call.late[n] != nil {
		a.late++
	} else {
		a.messages++
		a.bytes += weight(&claimed.Message)
		a.took += report.At.Sub(a.call.began)
	}
	r.docket.decide(i, report.Outcome)
}

// flush tells the window, and the route that was probed, of the answers.
func (r *runner) flush(a *tally) {
	if a.messages+a.late == 0 {
		return
	}
	r.services.sinkAnswered(r.b.window.answered(a.messages, a.bytes, a.took/time.Duration(max(1, a.messages))))
	r.b.lesson.answered = true
	if r.b.route != nil && !r.succeeded {
		r.succeeded = true
		r.services.routes.succeed(r.b.route)
	}
}

func (r *runner) failed(c *call, n int) {
	i := c.at(n)
	outcome := c.outcomes.Taken(n).Outcome
	if c.late[n] == nil {
		r.b.window.gone(1, weight(&r.b.claim.Messages[i].Message))
	}
	r.b.lesson.panicked = r.b.lesson.panicked || isPanic(outcome)
	if isSignOfLife(outcome) {
		r.services.sinkAnswered(r.b.window.answered(0, 0, 0))
	}
	isCut := r.services.shutdown.isCut()
	outcome.Whole = outcome.Whole || isCut && outcome.Reason == sinks.ReasonTimeout
	if outcome.Whole && !isCut && r.b.window.share.Down() {
		r.services.log.Warn("sink unavailable, messages wait", "event", "publish", "reason", string(outcome.Reason), "err", outcome.Err)
	}
	r.docket.decide(i, outcome)
}
