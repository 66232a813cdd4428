package message

import "time"

// LateAction is what becomes of a message that is too late.
type LateAction string

// The actions. The empty one is LatePublish.
const (
	// LatePublish publishes it however late.
	LatePublish LateAction = "publish"
	// LateDead sends it to the dead letters.
	LateDead LateAction = "dead"
	// LateDrop removes it, counted and logged.
	LateDrop LateAction = "drop"
)

// Late says how late a message may be published, counted from its promised due time,
// and what becomes of one that is later.
type Late struct {
	After time.Duration
	Then  LateAction
}

// IsOver reports whether a message that was due then is too late now.
func (l Late) IsOver(due, now time.Time) bool {
	return (l.Then == LateDead || l.Then == LateDrop) && now.Sub(due) > l.After
}
