package nats

import (
	"context"
	"errors"
	"fmt"
	"iter"
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

// publications are the messages that were handed over and have no answer. Numbers grow by one, and answers come
// mostly in that order, so each number has its place in a ring, which costs less than a map.
type publications struct {
	ring  [waitingMost]publication
	count int
	last  uint64 // the number that was given last
}

func (p *publications) place(number uint64) *publication { return &p.ring[number%waitingMost] }

// add numbers a message, of which there are fewer than waitingMost.
func (p *publications) add(w publication) uint64 {
	for p.last++; p.place(p.last).submission != nil; { // An older one still waits there.
		p.last++
	}
	w.number = p.last
	*p.place(p.last) = w
	p.count++
	return p.last
}

// remove takes out the message of that number, if it is there.
func (p *publications) remove(number uint64) (w publication, ok bool) {
	if w = *p.place(number); w.submission == nil || w.number != number {
		return publication{}, false
	}
	*p.place(number) = publication{}
	p.count--
	return w, true
}

// all are those that are there, the last ones first. The loop may change and remove the one that it has.
func (p *publications) all() iter.Seq[*publication] {
	return func(yield func(*publication) bool) {
		for number, left := p.last, p.count; left > 0; number-- {
			if w := p.place(number); w.submission != nil {
				if left--; !yield(w) {
					return
				}
			}
		}
	}
}

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
	for w := range c.connection.waiting.all() {
		if w.submission == c {
			c.connection.giveUp(w.number, outcome)
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
	for w := range c.waiting.all() {
		if isMoving && w.number > c.reached {
			w.since = c.ticks
		}
		if c.ticks-w.since <= ticksOfTimeout {
			continue
		}
		if socket.silence() >= c.timeout {
			return true
		}
		c.giveUp(w.number, classify(fmt.Errorf("subject %s: %w", w.submission.batch[w.index].Topic, errNoAnswer)))
	}
	return false
}

// giveUp settles a message whose answer is no longer awaited, with c.mu held.
func (c *connection) giveUp(number uint64, outcome sinks.Outcome) {
	c.denied.isBlurred = true
	c.settle(number, outcome)
}
