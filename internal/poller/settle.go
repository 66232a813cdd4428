package poller

import (
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

// settleAfter is how long what was decided waits for the rest of its batch,
// giveBackAfter where messages go back: they may be others' predecessors.
const (
	settleAfter   = 100 * time.Millisecond
	giveBackAfter = 10 * time.Millisecond
)

// docket holds the verdicts on a batch's messages, and writes them to Redis in
// parts: what is decided now, while the rest of the claim lives on. The batch's
// runner owns it.
type docket struct {
	services *services
	b        *batch
	verdicts []message.Verdict
	parkedIn []*route // by message; nil where none was parked
	decided  []int    // not settled yet
	since    time.Duration
	ended    []bool
	left     int // not settled
	open     int // not decided
	goesBack bool
}

func newDocket(s *services, b *batch) *docket {
	n := len(b.claim.Messages)
	return &docket{
		services: s, b: b, verdicts: make([]message.Verdict, n), decided: make([]int, 0, n), ended: make([]bool, n), left: n, open: n,
	}
}

// note records a verdict; in is the route whose slot the message goes to.
func (d *docket) note(i int, verdict message.Verdict, in *route) {
	if len(d.decided) == 0 {
		d.since = d.services.now()
	}
	if in != nil {
		if d.parkedIn == nil {
			d.parkedIn = make([]*route, len(d.verdicts))
		}
		verdict.Verb, verdict.Slot = message.VerbPark, in.slot
		d.parkedIn[i] = in
	} else if verdict.Verb == message.VerbRelease {
		d.services.returns.begin(d.b.claim.Messages[i].DueAt)
	}
	d.goesBack = d.goesBack || fateOf(&verdict) == fateBroken
	d.verdicts[i] = verdict
	d.decided = append(d.decided, i)
	d.open--
}

func (d *docket) fate(i int) fate { return fateOf(&d.verdicts[i]) }

// isDue reports whether to write what is decided now.
func (d *docket) isDue() bool {
	return len(d.decided) > 0 && (d.open == 0 || d.until() <= 0)
}

// until is how long to wait for more verdicts, where there are any.
func (d *docket) until() time.Duration {
	after := settleAfter
	if d.goesBack {
		after = giveBackAfter
	}
	return d.since + after - d.services.now()
}

// settle writes what is decided. It repeats an unanswered call for as long as
// the claim may still be ours: until the loop has reclaimed it, or the drain
// ends. It reports false where it gave up.
func (d *docket) settle() bool {
	settlement := d.settlement()
	pause := wait.Backoff{Initial: redisBackoffInitial, Limit: redisBackoffLimit}
	for began := d.services.now(); ; settlement.Repeated = true {
		stale, err := d.services.redis.settle(settlement)
		if err == nil {
			d.report(stale)
			if stale || settlement.Repeated {
				d.tellAcks(d.decided)
			}
			d.close(!stale)
			return true
		}
		// Where only settling fails, the claim must end by itself some day.
		if d.services.now()-began > d.services.config.Claims.Timeout {
			d.b.forsaken.Store(true)
		}
		if d.b.lost.Load() || !wait.Sleep(d.services.redis.ctx, pause.Next()) {
			d.services.log.Warn("claim left to be reclaimed", "event", "settle", "messages", d.left, "err", err)
			return false
		}
	}
}

// settlement is the part of the claim that is not settled, with the verdicts
// that there are, and VerbKeep for what has none.
func (d *docket) settlement() message.Settlement {
	all := d.b.claim.Messages
	settlement := message.Settlement{Claim: d.b.claim, Parks: d.parks()}
	if len(d.decided) == len(all) {
		settlement.Verdicts = d.verdicts
		return settlement
	}
	kept := make([]bool, len(all))
	for i := range kept {
		kept[i] = true
	}
	for _, i := range d.decided {
		kept[i] = false
	}
	settlement.Claim.Messages = make([]message.Claimed, 0, d.left)
	settlement.Verdicts = make([]message.Verdict, 0, d.left)
	for i := range all {
		verdict := d.verdicts[i]
		switch {
		case d.ended[i]:
			continue
		case kept[i]:
			verdict = message.Verdict{Verb: message.VerbKeep}
		}
		settlement.Claim.Messages = append(settlement.Claim.Messages, all[i])
		settlement.Verdicts = append(settlement.Verdicts, verdict)
	}
	return settlement
}

// parks is what Redis is to know of the routes whose messages are parked.
func (d *docket) parks() []message.ParkedRoute {
	if d.parkedIn == nil {
		return nil
	}
	used := make(map[*route]bool)
	for _, i := range d.decided {
		if r := d.parkedIn[i]; r != nil {
			used[r] = true
		}
	}
	return d.services.routes.tell(used)
}

// close ends the messages that are decided, in Redis too where isDone.
func (d *docket) close(isDone bool) {
	released, sent := 0, map[*route]int{}
	for _, i := range d.decided {
		d.ended[i] = true
		switch verdict := &d.verdicts[i]; verdict.Verb {
		case message.VerbPark:
			sent[d.parkedIn[i]]++
		case message.VerbRelease:
			released++
		case message.VerbRetry:
			if isDone {
				d.services.returns.claimableFrom(d.services.now() + verdict.Delay)
			}
		case message.VerbAck, message.VerbDeadLetter, message.VerbDrop, message.VerbKeep:
		}
	}
	d.left -= len(d.decided)
	d.services.returns.departed.add(d.b.fates.back(d.decided, d.fate)) // Before anything lets the loop claim them.
	if d.b.route != nil {
		d.services.routes.settled(d.b.route, len(d.decided))
	}
	for r, n := range sent {
		d.services.routes.parked(r, n)
	}
	if released > 0 {
		d.services.returns.end(released, d.services.now())
	}
	d.services.config.Observer.AddInFlight(d.services.config.Queue, -len(d.decided))
	d.decided, d.goesBack = d.decided[:0], false
	signal(d.services.settled)
}

// tellAcks hands over the outbox messages that the broker has acknowledged.
func (d *docket) tellAcks(indices []int) {
	if d.services.config.Hooks.OnLateAcks == nil {
		return
	}
	var acked []message.Claimed
	for _, i := range indices {
		if m := &d.b.claim.Messages[i]; d.verdicts[i].Verb == message.VerbAck && message.IsOutboxToken(m.Token) {
			acked = append(acked, *m)
		}
	}
	if len(acked) > 0 {
		d.services.config.Hooks.OnLateAcks(acked)
	}
}
