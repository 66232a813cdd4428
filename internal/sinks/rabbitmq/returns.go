package rabbitmq

import (
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"
)

// noteReturns notes what the broker has returned. The driver's one reader
// delivers a return before the acknowledgement that follows it, so the return
// of a message that is acknowledged was noted, or is in the buffer.
func (c *channel) noteReturns() {
	if c.open == nil {
		return
	}
	for c.open.returns != nil {
		select {
		case r, ok := <-c.open.returns:
			c.noteReturn(r, ok)
		default:
			return
		}
	}
}

// noteReturn finds the message that was returned. Returns name no delivery tag,
// and messages of different Keys may have equal ids, so the message is the
// first that equals the return in all that we published: where several do, they
// are copies of each other to every consumer, and it does not matter which of
// them is published again. If none does, something on the way has changed the
// content; then no message of that id and topic is known to be stored. Nor is
// one where a message that nobody waits for any more has the same id.
func (c *channel) noteReturn(r amqp.Return, ok bool) {
	if !ok {
		c.open.returns = nil // The channel is closed.
		return
	}
	var twins []*publication
	isCertain := true
	for _, p := range c.pending {
		if p.id == r.MessageId && p.topic == r.RoutingKey {
			twins = append(twins, p)
			isCertain = isCertain && p.submission != nil
		}
	}
	for _, p := range twins {
		if isCertain && !errors.Is(p.returned, errUnroutable) && isReturn(&r, p.publishing) {
			p.returned = fmt.Errorf("%w: %d", errUnroutable, r.ReplyCode)
			return
		}
	}
	for _, p := range twins {
		if p.returned == nil {
			p.returned = errTwin
		}
	}
}
