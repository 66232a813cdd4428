package rabbitmq

import (
	"time"

	"github.com/delaybridge/delaybridge/internal/sinks"
)

// look makes sure that checkTime is called after a while, where anything waits.
func (c *channel) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lookAt == nil && len(c.pending)+len(c.queue) > 0 {
		c.lookAt = time.After(c.connection.config.PublishTimeout / looks)
	}
}

// checkTime gives up a channel whose first pending message has waited for the
// publish timeout without progress, and messages that have waited as long for
// the channel to open.
func (c *channel) checkTime(now time.Time) {
	c.lookAt = nil
	timeout := c.connection.config.PublishTimeout
	if len(c.pending) > 0 {
		if now.Sub(c.progress(c.pending[0], now)) >= timeout {
			c.giveUp()
		}
		return
	}
	if c.open != nil && !c.open.isReady {
		c.refuse(classify(notHanded, errSilent), func(p *publication) bool { return now.Sub(p.since) >= timeout })
	}
}

// progress returns when the first pending message last came nearer to its
// answer. While its bytes are still being written, that is now: the wire itself
// gives the connection up if it accepts nothing. While the broker answers
// messages that were written before it, on any channel, the message may be in a
// buffer of a slow link. After that the route itself must make progress.
func (c *channel) progress(first *publication, now time.Time) time.Time {
	wire := c.connection.wire
	if wire.handed() < first.end && !wire.isBlocked.Load() {
		first.since = now
	}
	first.since = latest(first.since, c.connection.confirmed.before(first.start))
	return latest(first.since, c.confirmedAt)
}

// giveUp ends the wait for what is pending: the channel is closed, and what is
// queued behind it for the same routes is not handed over.
func (c *channel) giveUp() {
	err := errSilent
	if c.connection.wire.isBlocked.Load() {
		err = errBlocked
	}
	open, silent := c.open, map[string]bool{}
	pending := c.abandon()
	open.close()
	for _, p := range pending {
		silent[p.topic] = true
		if p.answer == methodAck {
			c.judge(p)
		} else {
			c.settle(p, classify(handed, err))
		}
	}
	c.proven = c.proven.forgotten()
	unavailable := classify(handed, err)
	unavailable.Class = sinks.Unavailable
	c.refuse(unavailable, func(p *publication) bool { return silent[p.topic] })
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
