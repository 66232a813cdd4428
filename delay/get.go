package delay

import (
	"context"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/seal"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

// State is where a message is.
type State string

// The states of a message.
const (
	// Scheduled: it waits until it is due.
	Scheduled State = "scheduled"
	// InFlight: it is being published.
	InFlight State = "in_flight"
	// Dead: it is in the dead letters.
	Dead State = "dead"
)

// The states of a message that has ended. Get returns them for as long as the queue's
// history keeps the message (queues.*.history in the bridge's configuration); otherwise
// such a message is not found.
const (
	// Published: the broker has acknowledged it.
	Published State = "published"
	// Cancelled: by Cancel, or by the row of an outbox.
	Cancelled State = "cancelled"
	// Dropped: it was later than its queue, or its own [Late], allows.
	Dropped State = "dropped"
	// Purged: it was a dead letter, and was deleted.
	Purged State = "purged"
)

// Info is a message as it is now.
type Info struct {
	Message
	// UID identifies the message even if its ID is used again; consumers get it as
	// [HeaderUID]. It is empty for a message that has ended.
	UID   string
	State State
	// DueAt is the due time now in force.
	DueAt time.Time
	// ScheduledAt is when Redis accepted the message first.
	ScheduledAt time.Time
	// Attempt is the number of the next attempt to publish it, or of the running one.
	Attempt int
	// Reason is why it is in the dead letters, or why it ended without being published.
	Reason string
	// End says how the message ended, if State is that of an ended one. Otherwise it says
	// how the previous message of this identity ended, or this one before it was put back
	// from the dead letters. Nil if the queue remembers nothing.
	End *End
	// BodyErr is why Body is empty although one is stored: it is encrypted, see
	// [WithEncryption], with a key that the client does not have, or it was encrypted for
	// another message. It names the key's id.
	BodyErr error
}

// End says how a message ended, according to the queue's history.
type End struct {
	// State is Published, Cancelled, Dropped, Purged, or Dead.
	State State
	// At is when, by Redis' clock.
	At time.Time
	// Place is where the broker stored it: "partition 3 offset 8812" in Kafka, "stream
	// ORDERS sequence 17" in NATS. Empty if the broker does not tell, like RabbitMQ.
	Place string
	// Topic, DueAt and Attempt are as in [Info]; DueAt is zero if it is not known.
	Topic   string
	DueAt   time.Time
	Attempt int
	// Reason is why it was dropped or died.
	Reason string
}

// Get returns the message as it is now. A message that has ended has neither headers nor body,
// and is [ErrNotFound] if the queue does not remember it. If ref lacks the Key, Get searches for
// it as [Client.Cancel] does. Other errors are [ErrUnavailable], [ErrNoLayout] and [ErrInvalid].
func (c *Client) Get(ctx context.Context, ref Ref) (Info, error) {
	ctx, cancel := c.begin(ctx)
	defer cancel()
	if err := checkRef(ref); err != nil {
		return Info{}, err
	}
	found, ok, err := inspect.Get(ctx, c.store, ref.ID, ref.Key)
	switch {
	case err != nil:
		return Info{}, err
	case !ok && found.End == nil:
		return Info{}, c.notFound(ctx, ref)[ref]
	case !ok:
		return endedInfo(ref, found.End), nil
	}
	return c.livingInfo(ref, &found)
}

// endedInfo is a message that only the history knows.
func endedInfo(ref Ref, last *message.End) Info {
	end := endOf(last)
	return Info{
		Message: Message{ID: ref.ID, Key: ref.Key, Topic: end.Topic}, State: end.State,
		DueAt: end.DueAt, Attempt: end.Attempt, Reason: end.Reason, End: end,
	}
}

func endOf(last *message.End) *End {
	if last == nil {
		return nil
	}
	end := &End{State: State(last.Kind.String()), At: last.At, Topic: last.Topic, DueAt: last.DueAt, Attempt: last.Attempt}
	if last.Kind == message.EndPublished {
		end.Place = last.Detail
	} else {
		end.Reason = last.Detail
	}
	return end
}

func (c *Client) livingInfo(ref Ref, found *inspect.Snapshot) (Info, error) {
	bodyErr := seal.Open(c.extras.keys, &found.Message)
	if bodyErr != nil {
		found.Body = nil
		found.Headers, _, _ = message.CutSealed(found.Headers) // bodyErr says what is wrong with it.
	}
	uid := found.UID()
	headers, _ := message.CutUID(found.Headers)
	headers, tags := message.CutTags(message.CutFirst(headers))
	headers, late, _ := message.CutLate(headers) // It was checked when it was scheduled.
	info := Info{
		Message:     Message{ID: ref.ID, Key: ref.Key, Topic: found.Topic, Headers: headers, Body: found.Body, Tags: tags, Late: Late{After: late.After, Then: LateAction(late.Then)}},
		UID:         uid,
		State:       stateOf(found.Code),
		DueAt:       found.DueAt,
		ScheduledAt: found.ScheduledAt,
		Attempt:     found.Attempt,
		Reason:      found.Reason,
		End:         endOf(found.End),
		BodyErr:     bodyErr,
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
