package delay

import (
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// LateAction is what becomes of a message that could not be published in time.
type LateAction string

// The actions.
const (
	// LatePublish publishes it however late.
	LatePublish LateAction = "publish"
	// LateDead sends it to the dead letters.
	LateDead LateAction = "dead"
	// LateDrop removes it: it is counted and logged. A message of which a copy may be out
	// is published again instead.
	LateDrop LateAction = "drop"
)

// Late says how long after its due time a message may be published, and what becomes of
// one that is later, for example after an outage or a pause.
type Late struct {
	// After is 1 ms or more; with LatePublish it says nothing.
	After time.Duration
	Then  LateAction
}

// headers are the message's own, with what it carries in reserved ones.
func (m *Message) headers() (map[string]string, error) {
	headers, err := message.WithTags(m.Headers, m.Tags)
	if err != nil {
		return nil, err
	}
	return message.WithLate(headers, message.Late{After: m.Late.After, Then: message.LateAction(m.Late.Then)})
}
