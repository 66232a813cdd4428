package delay

import (
	"context"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/store"
)

// State is where a message is.
type State string

// The states of a message that has not ended.
const (
	// Scheduled: it waits until it is due.
	Scheduled State = "scheduled"
	// InFlight: it is being published.
	InFlight State = "in flight"
	// Dead: it is in the dead letters.
	Dead State = "dead"
)

// Info is a message as it is now.
type Info struct {
	Message
	State State
	// DueAt is the due time now in force.
	DueAt time.Time
	// ScheduledAt is when Redis accepted the message first.
	ScheduledAt time.Time
	// Attempt is the number of the next attempt to publish it, or of the running one.
	Attempt int
	// Reason is why it is in the dead letters.
	Reason string
}

// Get returns the message as it is now. Its errors are [ErrNotFound],
// [ErrUnavailable], [ErrNoLayout] and [ErrInvalid].
func (c *Client) Get(ctx context.Context, ref Ref) (Info, error) {
	ctx, cancel := c.begin(ctx)
	defer cancel()
	if err := checkRef(ref); err != nil {
		return Info{}, err
	}
	found, ok, err := c.queue.Get(ctx, ref.ID, ref.Key)
	if err != nil {
		return Info{}, err
	}
	if !ok {
		return Info{}, ErrNotFound
	}
	headers, tags := message.CutTags(found.Headers)
	headers, late, _ := message.CutLate(headers) // It was checked when it was scheduled.
	info := Info{
		Message:     Message{ID: ref.ID, Key: ref.Key, Topic: found.Topic, Headers: headers, Body: found.Body, Tags: tags, Late: Late{After: late.After, Then: LateAction(late.Then)}},
		State:       stateOf(found.Code),
		DueAt:       found.DueAt,
		ScheduledAt: found.ScheduledAt,
		Attempt:     found.Attempt,
		Reason:      found.Reason,
	}
	if found.Err != nil {
		return info, fmt.Errorf("read message: %w", found.Err)
	}
	return info, nil
}

func stateOf(code store.Code) State {
	switch code {
	case store.InFlight:
		return InFlight
	case store.Dead:
		return Dead
	default:
		return Scheduled
	}
}
