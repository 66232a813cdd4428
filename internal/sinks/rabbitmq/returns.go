package rabbitmq

import "fmt"

// noteReturn finds the message that was returned. Returns name no delivery tag, and messages of
// different Keys may have equal ids, but each has a UID of its own. If several have it, they are
// copies of one message, and the others may be stored. If none has, something on the way has
// changed the headers; then no message of that topic is known to be stored.
func (c *channel) noteReturn(r *returnedMessage) {
	var copies, others []*publication
	for _, p := range c.pending {
		switch {
		case p.topic != r.topic:
		case uidIn(p.properties) == r.uid:
			copies = append(copies, p)
		default:
			others = append(others, p)
		}
	}
	switch len(copies) {
	case 0:
		doubt(others)
	case 1:
		copies[0].returned = fmt.Errorf("%w: %d", errUnroutable, r.code)
	default:
		doubt(copies)
	}
}

// doubt records for messages that one of them was returned.
func doubt(messages []*publication) {
	for _, p := range messages {
		if p.returned == nil {
			p.returned = errTwin
		}
	}
}
