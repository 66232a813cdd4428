package nats

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/internal/sinks"
)

const (
	// waitingMost bounds what a connection keeps without an answer: a stream of a
	// server refuses to queue more than 10,000. It is for safety; whoever publishes
	// keeps far less in flight.
	waitingMost = 8192
	// crowded is how long a submission waits when there is so much.
	crowded = 10 * time.Millisecond
	// grace is how long a submission may still be in the client after its ctx ended,
	// before the connection is broken off to get it out of a blocked write.
	grace = time.Second
	// ticksOfTimeout is how many ticks of a connection a message may wait.
	ticksOfTimeout = 4
)

var (
	// errNoAnswer is the outcome of a message that was handed over and not answered.
	errNoAnswer = errors.New("no answer within the publish timeout")
	// errSilent ends a connection on which nothing at all is heard.
	errSilent = errors.New("nothing received within the publish timeout")
)

// pause waits for a moment, for answers.
func (c *connection) pause(ctx context.Context) error {
	select {
	case <-time.After(crowded):
		return nil
	case <-c.down:
		return c.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// refused settles a message that the client has not taken. If that is not for the
// message's sake, part of it may be in the client's buffer, and nothing may follow.
func (c *connection) refused(number uint64, err error) error {
	outcome := classify(err)
	if outcome.Class != sinks.Permanent {
		c.abort(err)
		outcome.Whole, err = true, c.Err()
	} else {
		err = nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settle(number, outcome)
	return err
}

// breakOff gets a submission whose ctx has ended out of the client, which heeds none while
// it writes.
func (c *submission) breakOff() {
	if !c.returned.Load() {
		c.connection.abort(context.DeadlineExceeded)
	}
}

// end gives the rest their outcomes if the submission ends early: what was handed over is
// Unknown, and what was not, or has no responders, is Unavailable.
func (c *submission) end(err error, whole bool) {
	outcome := sinks.Outcome{Class: sinks.Unknown, Reason: why(err), Err: err, Whole: whole}
	c.connection.mu.Lock()
	defer c.connection.mu.Unlock()
	for number, w := range c.connection.waiting {
		if w.submission == c {
			c.connection.giveUp(number, outcome)
		}
	}
	outcome.Class = sinks.Unavailable
	c.outcomes.Rest(outcome)
}

// watch looks for what waits too long, for as long as the connection lives.
func (c *connection) watch() {
	ticker := time.NewTicker(max(c.timeout/ticksOfTimeout, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if c.tick() {
				c.abort(errSilent)
			}
		case <-c.down:
			return
		}
	}
}

// tick settles messages that were not answered in time. It reports whether the server is dead: it
// has not even answered pings.
//
// The server reads a connection in order, so what was handed over before a message
// that it has answered is there. The time of all others starts again as long as it
// answers anything, or a write that has to wait shows that it takes bytes.
func (c *connection) tick() (isDead bool) {
	socket := c.socket.Load()
	takesBytes := socket.hasWaited.Swap(false)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ticks++
	isMoving := takesBytes || c.reached > c.reachedBefore
	c.reachedBefore = c.reached
	for number, w := range c.waiting {
		if isMoving && number > c.reached {
			w.since = c.ticks
			c.waiting[number] = w
		}
		if c.ticks-w.since <= ticksOfTimeout {
			continue
		}
		if socket.silence() >= c.timeout {
			return true
		}
		c.giveUp(number, classify(fmt.Errorf("subject %s: %w", w.submission.batch[w.index].Topic, errNoAnswer)))
	}
	return false
}

// giveUp settles a message whose answer is no longer awaited, with c.mu held.
func (c *connection) giveUp(number uint64, outcome sinks.Outcome) {
	c.denied.isBlurred = true
	c.settle(number, outcome)
}
