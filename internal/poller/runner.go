package poller

import (
	"slices"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// runner sees one batch through: it publishes and settles it. It is one
// goroutine, and one more for each call of the sink, for which it waits.
type runner struct {
	services   *services
	b          *batch
	docket     *docket
	behind     int // segments that wait for those of earlier batches
	calls      []*call
	publishing sync.WaitGroup
	lookedAt   time.Duration // for messages that hang
	abandoned  bool          // the claim is not ours to settle any more
	timer      *time.Timer
	succeeded  bool // something from a slot was taken by the broker
}

// run ends when every message is settled, or the claim was given up and the
// sink has answered.
func (s *services) run(b *batch) {
	r := &runner{services: s, b: b, docket: newDocket(s, b), lookedAt: s.now()}
	defer func() {
		close(b.done)
		signal(s.settled)
	}()
	defer r.publishing.Wait()
	defer recovered(s.log, "settle", nil)
	defer r.finish()
	r.begin()
	for r.docket.left > 0 {
		if r.docket.isDue() && !r.abandoned {
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
	r.b.window.end()
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
		c.giveUp(r.services)
	}
}

// begin decides what is not to be published, and publishes what need not wait.
func (r *runner) begin() {
	if r.b.isGivenUp {
		r.giveUpAll()
		return
	}
	ready := r.ready()
	r.confirm()
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
	var behind []int
	for _, s := range r.b.fates.behind {
		behind = r.b.fates.appendTo(behind[:0], s)
		for _, i := range behind {
			aside[i] = true
		}
	}
	r.behind = len(r.b.fates.behind)
	parked := make([]int, len(r.b.parked))
	for n, p := range r.b.parked {
		aside[p.index], parked[n] = true, p.index
		r.docket.note(p.index, message.Verdict{Attempts: all[p.index].Attempts}, p.route)
	}
	r.decided(parked)
	var decided []int
	ready := make([]int, 0, len(all))
	for i := range all {
		switch {
		case aside[i]:
		case all[i].Err != nil:
			decided = append(decided, i)
			r.docket.decide(i, sinks.Outcome{})
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
func (r *runner) skip(indices []int) { r.leaveOut(indices, false) }

func (r *runner) leaveOut(indices []int, isHeldBack bool) {
	if len(indices) == 0 {
		return
	}
	bytes := 0
	for _, i := range indices {
		bytes += weight(&r.b.claim.Messages[i].Message)
	}
	r.b.window.gone(len(indices), bytes)
	r.services.quota.refund(r.b.claim.Messages, indices, isHeldBack)
	r.decided(indices)
}

// decided tells the loop and those who wait for them of messages that have verdicts.
func (r *runner) decided(indices []int) {
	r.b.open.Store(int64(r.docket.open))
	r.b.fates.set(indices, r.docket.fate)
}

// await waits for an outcome, for an earlier batch, or until there is something to do.
func (r *runner) await() {
	pause := r.lookedAt + lookForHanging - r.services.now()
	if len(r.docket.decided) > 0 && !r.abandoned {
		pause = min(pause, r.docket.until())
	}
	if r.timer == nil {
		r.timer = time.NewTimer(pause)
	} else {
		r.timer.Reset(pause)
	}
	stop := r.services.shutdown.stop
	if r.behind == 0 {
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
	if r.behind > 0 {
		r.unblock(r.b.fates.take())
	}
	if r.services.now()-r.lookedAt >= lookForHanging {
		r.lookedAt = r.services.now()
		r.findHanging()
		r.parkBehind()
	}
}

// unblock publishes the messages of segments that waited, or gives them back: all
// of them in a drain.
func (r *runner) unblock(passages []passage) {
	if r.services.shutdown.isStopping() {
		for _, s := range r.b.fates.behind {
			passages = append(passages, passage{s, true})
		}
	}
	may := r.mayPublish()
	var ready, back []int
	for _, p := range passages {
		switch {
		case !p.segment.isBehind:
			continue
		case p.broken, !may, r.isClosed(p.segment):
			back = r.b.fates.appendTo(back, p.segment)
		default:
			ready = r.b.fates.appendTo(ready, p.segment)
		}
		p.segment.isBehind = false
		r.behind--
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
	for _, s := range r.b.fates.behind {
		if s.isBehind && r.isClosed(s) {
			passages = append(passages, passage{s, true})
		}
	}
	if len(passages) > 0 {
		r.unblock(passages)
	}
}

// giveBack decides that messages were not handed over.
func (r *runner) giveBack(indices []int) {
	for _, i := range indices {
		r.docket.decide(i, heldBack)
	}
	r.leaveOut(indices, true)
}

// isClosed reports whether the route of a segment's messages was closed since the
// claim. What was claimed from a slot is a probe, and goes out all the same.
func (r *runner) isClosed(s *segment) bool {
	m := &r.b.claim.Messages[s.first].Message
	return r.b.route == nil && r.services.routes.isClosed(r.services.config.Sink.Route(m), m.Topic)
}
