package rabbitmq

import (
	"errors"
	"fmt"
)

// noteReturn finds the message that was returned. Returns name no delivery tag,
// and messages of different Keys may have equal ids, so the message is the
// first that equals the return in all that we published: where several do, they
// are copies of each other to every consumer, and it does not matter which of
// them is published again. If none does, something on the way has changed the
// content; then no message of that id and topic is known to be stored. Nor is
// one if a message that is no longer awaited has the same id.
func (c *channel) noteReturn(r *returnedMessage) {
	var twins []*publication
	isCertain := true
	for _, p := range c.pending {
		if p.id == r.content.id && p.topic == r.topic {
			twins = append(twins, p)
			isCertain = isCertain && p.submission != nil
		}
	}
	for _, p := range twins {
		if isCertain && !errors.Is(p.returned, errUnroutable) && r.equals(p) {
			p.returned = fmt.Errorf("%w: %d", errUnroutable, r.code)
			return
		}
	}
	for _, p := range twins {
		if p.returned == nil {
			p.returned = errTwin
		}
	}
}
