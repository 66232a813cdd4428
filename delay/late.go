package delay

import (
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// LateAction says what happens to a message that could not be published in time.
type LateAction string

// The actions.
const (
	// LatePublish publishes it however late.
	LatePublish LateAction = "publish"
	// LateDead sends it to the dead letters.
	LateDead LateAction = "dead"
	// LateDrop removes it, counted and logged. A message of which a copy may be out is
	// published again instead.
	LateDrop LateAction = "drop"
)

// Late says how long after its due time a message may be published, and what happens to
// it after that, for example after an outage or a pause.
type Late struct {
	// After is 1 ms or more; it has no meaning with LatePublish.
	After time.Duration
	Then  LateAction
}

// headers returns the message's own headers and the reserved ones: for Tags, for Late, and for the first
// schedule of a message with a [When.MaxWait].
func (m *Message) headers(isBounded bool) (map[string]string, error) {
	headers, err := message.WithTags(m.Headers, m.Tags)
	if err == nil {
		headers, err = message.WithFirst(headers, isBounded)
	}
	if err != nil {
		return nil, err
	}
	return message.WithLate(headers, message.Late{After: m.Late.After, Then: message.LateAction(m.Late.Then)})
}
