package poller

import (
	"math/rand/v2"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// decide records the verdict on a message. A panic concerns this message alone.
func (d *docket) decide(i int, outcome sinks.Outcome) {
	open := d.open
	defer func() {
		if cause := recover(); cause != nil {
			logPanic(d.services.log, "settle", cause)
			if d.open == open { // It was not decided: a copy may be out.
				attempts := d.b.claim.Messages[i].Attempts
				attempts.Begun++
				attempts.MaybeOut++
				d.note(i, message.Verdict{Verb: message.VerbRelease, Attempts: attempts, Published: true}, nil)
			}
		}
	}()
	claimed := &d.b.claim.Messages[i]
	isDown, random := false, 0.0
	if outcome.Class != sinks.Acknowledged { // Nearly all are, and need neither.
		isDown, random = d.isDown(&claimed.Message), rand.Float64()
	}
	verdict := d.services.policy.Load().Retry.decide(claimed, outcome, isDown, random)
	if d.services.config.Places {
		verdict.Place = outcome.Place.String()
	}
	if verdict.Verb != message.VerbRelease {
		d.note(i, verdict, nil)
	} else {
		d.note(i, verdict, d.slotFor(&claimed.Message, outcome))
	}
	if outcome.Class != sinks.Acknowledged || claimed.Err != nil {
		d.services.reportOutcome(claimed, outcome)
	}
}

// isDown reports whether the message's route takes nothing, as far as is known.
func (d *docket) isDown(m *message.Message) bool {
	return d.services.routes.isDown(d.services.config.Sink.Route(m), m.Topic)
}

// slotFor returns the closed route to whose slot a message goes back; nil where
// it waits with what is due.
func (d *docket) slotFor(m *message.Message, outcome sinks.Outcome) *route {
	name := outcome.Route
	if name == "" {
		name = d.services.config.Sink.Route(m)
	}
	if concernsRoute(outcome) && !d.services.shutdown.isCut() {
		now := d.services.now()
		return d.services.routes.fail(name, m.Topic, outcome, now, d.services.redis.clock(now))
	}
	return d.services.routes.park(name, m.Topic)
}
