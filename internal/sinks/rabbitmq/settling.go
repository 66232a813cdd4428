package rabbitmq

import (
	"fmt"
	"slices"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/delaybridge/delaybridge/internal/sinks"
)

// closed settles what is pending on a channel that the broker has closed, or
// that was lost with the connection. Queued messages go over the next one,
// unless the broker has refused their route.
func (c *channel) closed(exception *amqp.Error) {
	cause := c.connection.Err()
	if exception != nil {
		cause = fmt.Errorf("channel closed: %w", exception)
	}
	given := ^uint64(0)
	if c.connection.amqp.IsClosed() {
		given = c.connection.wire.end(errLost)
	}
	for _, p := range c.abandon() {
		switch {
		case p.answer == methodAck:
			c.judge(p)
			continue
		case given <= p.start:
			c.settle(p, classify(notHanded, cause))
			continue
		case !p.isAlone:
			c.proven.isExact = c.proven.isExact || isOfChannel(cause)
			c.settle(p, classify(handed, cause))
			continue
		}
		outcome := classify(alone, cause)
		c.settle(p, outcome)
		if outcome.Class == sinks.Unavailable {
			c.refuse(outcome, func(waiting *publication) bool { return waiting.topic == p.topic })
		}
	}
	c.proven = c.proven.forgotten()
}

// abandon forgets the open channel, and returns the messages pending on it.
func (c *channel) abandon() []*publication {
	pending := c.pending
	c.pending, c.open = nil, nil
	return pending
}

// finish settles all that is left when the connection is lost.
func (c *channel) finish() {
	c.hear()
	if c.open != nil {
		c.closed(nil)
	}
	err := c.connection.Err()
	c.mu.Lock()
	c.ended = err
	c.mu.Unlock()
	c.refuse(classify(notHanded, err), func(*publication) bool { return true })
}

// refuse gives an outcome to the queued messages that match, which are not
// handed over.
func (c *channel) refuse(outcome sinks.Outcome, match func(*publication) bool) {
	for _, p := range c.take(match) {
		c.settle(p, outcome)
	}
}

// take removes the messages that match from the queue.
func (c *channel) take(match func(*publication) bool) []*publication {
	c.mu.Lock()
	defer c.mu.Unlock()
	var taken []*publication
	c.queue = slices.DeleteFunc(c.queue, func(p *publication) bool {
		if !match(p) {
			return false
		}
		taken = append(taken, p)
		return true
	})
	return taken
}

// sweep settles the messages of calls that have ended early. What was handed
// over stays pending, without a submission, until the broker answers.
func (c *channel) sweep() {
	c.mu.Lock()
	isDue := c.swept
	c.swept = false
	c.mu.Unlock()
	if !isDue {
		return
	}
	for _, p := range c.take(func(p *publication) bool { return p.submission.over.Load() }) {
		c.settle(p, classify(notHanded, p.submission.cause))
	}
	for _, p := range c.pending {
		if s := p.submission; s != nil && s.over.Load() {
			p.submission = nil
			p.body = nil
			s.settle(p.index, classify(handed, s.cause))
		}
	}
}
