package poller

import (
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// call is one call of the sink: some of a batch's messages, in due order.
type call struct {
	indices  []int // in the batch; nil is all of it
	outcomes *sinks.Outcomes
	began    time.Time
	size     int
	left     int
	// late are those that hang, and the routes that were closed for it.
	late map[int]*route
}

// at is the place in the batch of the n-th message of the call.
func (c *call) at(n int) int {
	if c.indices == nil {
		return n
	}
	return c.indices[n]
}

// hear ends the wait for a message that hung.
func (c *call) hear(s *services, b *batch, n int, outcome sinks.Outcome) {
	if late := c.late[n]; late != nil {
		b.hung.Add(-1)
		s.routes.heard(late, isAnswer(outcome), s.now())
	}
}

// giveUp ends the wait for all messages that hang: nobody hears of them any more.
func (c *call) giveUp(s *services) {
	for n, late := range c.late {
		if _, known := c.outcomes.At(n); !known {
			s.routes.heard(late, false, s.now())
		}
	}
}

// run publishes, and answers for a sink that panics or leaves outcomes out.
func (c *call) run(s *services, messages []message.Message) {
	defer func() {
		if cause := recover(); cause != nil {
			logPanic(s.log, "publish", cause)
			reason := reasonPanic
			if len(messages) == 1 {
				reason = reasonPanicAlone
			}
			c.outcomes.Rest(sinks.Failed(sinks.Unknown, reason, fmt.Errorf("sink panicked: %v", cause)))
			return
		}
		c.outcomes.Rest(sinks.Failed(sinks.Unknown, reasonNoOutcome, errNoOutcome))
	}()
	s.config.Sink.Publish(s.shutdown.publishCtx, messages, c.outcomes)
}

// publish hands messages to the sink that are not too late, whose topics the queue takes,
// and whose bodies open: all of them where indices is nil.
func (r *runner) publish(indices []int) {
	indices, none := r.inTime(indices)
	if !none {
		indices, none = r.allowed(indices)
	}
	if none {
		return
	}
	messages, indices := r.open(indices)
	if len(messages) == 0 {
		return
	}
	c := &call{indices: indices, outcomes: sinks.NewOutcomesTo(len(messages), r.b.changed), began: time.Now()}
	c.size, c.left = len(messages), len(messages)
	r.calls = append(r.calls, c)
	r.publishing.Go(func() { c.run(r.services, messages) })
}

// mayPublish reports whether a publish may start: none does after the lease or
// the claim's deadline, for order (I15), in a drain, or of a claim that is not confirmed.
func (r *runner) mayPublish() bool {
	return !r.b.lesson.unconfirmed && r.b.mayPublish(r.services.now()) && !r.services.shutdown.isStopping()
}

// Messages that hang are looked for now and then. One hangs if it was not
// answered for so long, while messages that were handed over later were; or while
// nobody was and the window is full: then all that fill it may be of routes that
// hang, and no answer to others can come.
const (
	lookForHanging = 125 * time.Millisecond
	leastHanging   = 500 * time.Millisecond
	hangingTimes   = 4 // the usual time to an answer
)

// findHanging closes the routes of messages that hang, so that no more of them
// follow, and takes them out of the window, so that they keep nobody else.
func (r *runner) findHanging() {
	window := r.services.config.Sink.Window
	pace := window.Pace()
	limit := max(leastHanging, hangingTimes*pace.Took)
	now := time.Now()
	isStuck := now.Sub(pace.Answered) >= limit && window.IsCrowded()
	for _, c := range r.calls {
		if c.left == 0 || now.Sub(c.began) < limit || pace.Overtaken.Sub(c.began) < limit/2 && !isStuck {
			continue
		}
		for n := range c.size {
			if _, known := c.outcomes.At(n); known || c.late[n] != nil {
				continue
			}
			m := &r.b.claim.Messages[c.at(n)].Message
			if c.late == nil {
				c.late = make(map[int]*route)
			}
			at := r.services.now()
			r.b.hung.Add(1)
			c.late[n] = r.services.routes.hang(r.services.config.Sink.Route(m), at, r.services.redis.clock(at))
			r.b.window.gone(1, weight(m))
		}
	}
}
