package poller

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// settleAfter is how long what was decided waits for the rest of its batch,
// giveBackAfter where messages go back: they may be others' predecessors.
const (
	settleAfter   = 100 * time.Millisecond
	giveBackAfter = 10 * time.Millisecond
)

// runner sees one batch through: it publishes and settles it. It is one
// goroutine, and one more for each call of the sink, for which it waits.
type runner struct {
	services   *services
	b          *batch
	docket     *docket
	behind     map[chain][]int // messages that wait for those of earlier batches
	calls      []*call
	publishing sync.WaitGroup
	lookedAt   time.Duration // for messages that hang
	abandoned  bool          // the claim is not ours to settle any more
	timer      *time.Timer
	// inWindow and bytesInWindow are what the share still holds for the batch.
	inWindow, bytesInWindow int
	succeeded               bool // something from a slot was taken by the broker
}

// run ends when every message is settled, or the claim was given up and the
// sink has answered.
func (s *services) run(b *batch) {
	r := &runner{services: s, b: b, docket: newDocket(s, b), lookedAt: s.now()}
	r.inWindow, r.bytesInWindow = b.published()
	defer func() {
		close(b.done)
		signal(s.settled)
	}()
	defer r.publishing.Wait()
	defer recovered(s.log, "settle", nil)
	defer r.finish()
	r.begin()
	for r.docket.left > 0 {
		if r.isSettleDue() && !r.abandoned {
			r.abandoned = !r.docket.settle()
			continue
		}
		if r.abandoned && r.docket.open == 0 {
			return
		}
		r.await()
		r.collect()
	}
}

// finish gives up what a claim that was lost has left.
func (r *runner) finish() {
	if r.timer != nil {
		r.timer.Stop()
	}
	if r.inWindow > 0 || r.bytesInWindow != 0 {
		r.leaveWindow(r.inWindow, r.bytesInWindow)
	}
	if r.docket.left == 0 {
		return
	}
	r.docket.tellAcks(r.docket.decided)
	r.docket.close(false)
	// What a panic has left without a verdict.
	r.services.config.Observer.AddInFlight(r.services.config.Queue, -r.docket.left)
	if r.b.route != nil {
		r.services.routes.settled(r.b.route, r.docket.left)
	}
	for _, c := range r.calls {
		for n, late := range c.late {
			if _, known := c.outcomes.At(n); !known {
				r.services.routes.heard(late, false, r.services.now())
			}
		}
	}
}

// begin decides what is not to be published, and publishes what need not wait.
func (r *runner) begin() {
	if r.b.isGivenUp {
		r.giveUpAll()
		return
	}
	ready := r.ready()
	if !r.mayPublish() {
		r.giveBack(ready)
		return
	}
	if len(ready) == len(r.b.claim.Messages) {
		ready = nil
	} else if len(ready) == 0 {
		return
	}
	r.publish(ready)
}

// ready are the messages that need not wait. It decides about those that cannot
// be decoded or are parked, and notes for which others the rest wait.
func (r *runner) ready() []int {
	all := r.b.claim.Messages
	aside := make([]bool, len(all))
	for _, i := range r.b.precedence.behind {
		aside[i] = true
		c := chain{all[i].Key, all[i].Topic}
		if r.behind == nil {
			r.behind = make(map[chain][]int)
		}
		r.behind[c] = append(r.behind[c], i)
	}
	parked := make([]int, len(r.b.parked))
	for n, p := range r.b.parked {
		aside[p.index], parked[n] = true, p.index
		r.docket.note(p.index, message.Verdict{Attempts: all[p.index].Attempts}, p.route)
	}
	r.b.fates.set(r.b, parked, r.fate)
	var decided []int
	ready := make([]int, 0, len(all))
	for i := range all {
		switch {
		case aside[i]:
		case all[i].Err != nil:
			decided = append(decided, i)
			r.decide(i, sinks.Outcome{})
		default:
			ready = append(ready, i)
		}
	}
	r.skip(decided)
	return ready
}

// giveUpAll sends the messages of a route that was given up to the dead letters.
func (r *runner) giveUpAll() {
	cause, since := r.services.routes.refusal(r.b.route)
	closedFor := r.services.redis.clock(r.services.now()).Sub(since)
	all := make([]int, len(r.b.claim.Messages))
	for i := range all {
		all[i] = i
		r.docket.note(i, giveUp(&r.b.claim.Messages[i], cause, closedFor), nil)
	}
	r.skip(all)
}

// skip ends messages that were decided without the sink.
func (r *runner) skip(indices []int) {
	if len(indices) == 0 {
		return
	}
	bytes := 0
	for _, i := range indices {
		bytes += weight(&r.b.claim.Messages[i].Message)
	}
	r.leaveWindow(len(indices), bytes)
	r.b.fates.set(r.b, indices, r.fate)
}

// leaveWindow says that messages are not in flight any more, without an answer.
func (r *runner) leaveWindow(messages, bytes int) {
	r.inWindow -= messages
	r.bytesInWindow -= bytes
	r.services.share.Gone(messages, bytes)
}

// isSettleDue reports whether to write what is decided now.
func (r *runner) isSettleDue() bool {
	return len(r.docket.decided) > 0 && (r.docket.open == 0 || r.untilSettle() <= 0)
}

func (r *runner) untilSettle() time.Duration {
	after := settleAfter
	if r.docket.goesBack {
		after = giveBackAfter
	}
	return r.docket.since + after - r.services.now()
}

// await waits for an outcome, for an earlier batch, or until there is something to do.
func (r *runner) await() {
	pause := r.lookedAt + lookForHanging - r.services.now()
	if len(r.docket.decided) > 0 && !r.abandoned {
		pause = min(pause, r.untilSettle())
	}
	if r.timer == nil {
		r.timer = time.NewTimer(pause)
	} else {
		r.timer.Reset(pause)
	}
	stop := r.services.shutdown.stop
	if len(r.behind) == 0 {
		stop = nil
	}
	select {
	case <-r.b.changed:
	case <-r.timer.C:
	case <-stop:
	}
}

// collect takes what the sink and the earlier batches have said meanwhile.
func (r *runner) collect() {
	for _, c := range r.calls {
		if c.left > 0 {
			r.take(c)
		}
	}
	if len(r.behind) > 0 {
		r.unblock(r.b.fates.take())
	}
	if r.services.now()-r.lookedAt >= lookForHanging {
		r.lookedAt = r.services.now()
		r.findHanging()
		r.parkBehind()
	}
}

// unblock publishes the messages of chains that waited, or gives them back: all
// of them in a drain.
func (r *runner) unblock(passages []passage) {
	if closed(r.services.shutdown.stop) {
		for c := range r.behind {
			passages = append(passages, passage{c, true})
		}
	}
	may := r.mayPublish()
	var ready, back []int
	for _, p := range passages {
		indices := r.behind[p.chain]
		delete(r.behind, p.chain)
		switch {
		case len(indices) == 0:
		case p.broken, !may, r.isClosed(indices[0]):
			back = append(back, indices...)
		default:
			ready = append(ready, indices...)
		}
	}
	r.giveBack(back)
	if len(ready) > 0 {
		slices.Sort(ready) // In due order.
		r.publish(ready)
	}
}

// parkBehind gives back what waits for messages of a route that was closed.
func (r *runner) parkBehind() {
	var passages []passage
	for c, indices := range r.behind {
		if r.isClosed(indices[0]) {
			passages = append(passages, passage{c, true})
		}
	}
	if len(passages) > 0 {
		r.unblock(passages)
	}
}

// giveBack decides that messages were not handed over.
func (r *runner) giveBack(indices []int) {
	for _, i := range indices {
		r.decide(i, heldBack)
	}
	r.skip(indices)
}

// isClosed reports whether the message's route was closed since the claim. What
// was claimed from a slot is a probe, and goes out all the same.
func (r *runner) isClosed(i int) bool {
	m := &r.b.claim.Messages[i].Message
	return r.b.route == nil && r.services.routes.isClosed(r.services.config.Sink.Route(m), m.Topic)
}

// isDown reports whether the message's route takes nothing, as far as is known.
func (r *runner) isDown(m *message.Message) bool {
	return r.services.routes.isDown(r.services.config.Sink.Route(m), m.Topic)
}

func (r *runner) fate(i int) fate { return fateOf(&r.docket.verdicts[i]) }

// decide records the verdict on a message. A panic concerns this message alone.
func (r *runner) decide(i int, outcome sinks.Outcome) {
	open := r.docket.open
	defer func() {
		if cause := recover(); cause != nil {
			logPanic(r.services.log, "settle", cause)
			if r.docket.open == open { // It was not decided: a copy may be out.
				attempts := r.b.claim.Messages[i].Attempts
				attempts.Begun++
				attempts.MaybeOut++
				r.docket.note(i, message.Verdict{Verb: message.VerbRelease, Attempts: attempts, Published: true}, nil)
			}
		}
	}()
	claimed := &r.b.claim.Messages[i]
	verdict := r.services.config.Retry.decide(claimed, outcome, r.isDown(&claimed.Message), rand.Float64())
	if verdict.Verb != message.VerbRelease {
		r.docket.note(i, verdict, nil)
	} else {
		r.docket.note(i, verdict, r.slotFor(&claimed.Message, outcome))
	}
	if outcome.Class != sinks.Acknowledged || claimed.Err != nil {
		r.services.reportOutcome(claimed, outcome)
	}
}

// slotFor returns the closed route to whose slot a message goes back; nil where
// it waits with what is due.
func (r *runner) slotFor(m *message.Message, outcome sinks.Outcome) *route {
	name := outcome.Route
	if name == "" {
		name = r.services.config.Sink.Route(m)
	}
	if concernsRoute(outcome) && r.services.shutdown.publishCtx.Err() == nil {
		now := r.services.now()
		return r.services.routes.fail(name, outcome, now, r.services.redis.clock(now))
	}
	return r.services.routes.park(name, m.Topic)
}
