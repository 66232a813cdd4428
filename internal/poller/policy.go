package poller

import (
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// Policy is what of a queue's settings may change while it is polled.
type Policy struct {
	// Retry defaults to 1 s doubling to 10 min, 25 attempts.
	Retry Retry
	// ParkPatience is how long a route may be missing, unroutable or forbidden
	// before its messages go to the dead letters, default 24 h.
	ParkPatience time.Duration
	// Late says how late a message may be published; zero is however late.
	Late  message.Late
	Rates Rates
}

func (p *Policy) setDefaults() {
	setDefault(&p.Retry.Initial, defaultRetryInitial)
	setDefault(&p.Retry.Max, defaultRetryMax)
	setDefault(&p.Retry.Attempts, defaultRetryAttempts)
	setDefault(&p.ParkPatience, defaultParkPatience)
}

// Change gives the queue another policy. What is decided from now on is decided by it,
// of messages in flight, too. Of rates nothing is in hand.
func (p *Poller) Change(policy Policy) {
	policy.setDefaults()
	p.common.policy.Store(&policy)
	p.common.rates.follow(policy.Rates)
	p.lookAgain()
}

// lookAgain has each shard take a turn, which heeds what has changed.
func (p *Poller) lookAgain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.running {
		signal(s.news)
	}
}
