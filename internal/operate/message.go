package operate

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

// Message is a message as it is now.
type Message struct {
	ID             string            `json:"id"`
	Key            string            `json:"key"`
	Queue          string            `json:"queue"`
	Topic          string            `json:"topic"`
	State          string            `json:"state" enum:"scheduled,parked,in_flight,dead,published,cancelled,dropped,purged" doc:"Its state. A parked message waits until its route is back. The last four are known from the queue's history, if it keeps one."`
	DueAt          string            `json:"due_at,omitempty" format:"date-time"`
	ScheduledAt    string            `json:"scheduled_at,omitempty" format:"date-time" doc:"When it was first accepted."`
	Attempt        int               `json:"attempt" doc:"The number of the next attempt to publish it, or of the running one."`
	Reason         string            `json:"reason,omitempty" doc:"Why it is parked, dead, or has ended."`
	End            *End              `json:"end,omitempty" doc:"How it ended; for a live message, how the previous message of its identity ended, or this one before it was put back."`
	Route          string            `json:"route,omitempty" doc:"The route for which it is parked."`
	MaybePublished bool              `json:"maybe_published" doc:"A copy may be at the broker already."`
	Tags           []string          `json:"tags" nullable:"false"`
	Headers        map[string]string `json:"headers" nullable:"false" doc:"With delay-sealed, which names a key, where the payload is encrypted."`
	SealedBy       string            `json:"sealed_by,omitempty" doc:"The key with which the payload is encrypted; absent if it is not encrypted."`
	Body           *string           `json:"body,omitempty" doc:"The payload, if it was asked for and is text. An encrypted one is shown only if encryption.show_bodies says so."`
	BodyBase64     *string           `json:"body_base64,omitempty" doc:"The payload in base64, if it is not text."`
}

// ViewMessage is a message of the store; reason says which part of it cannot be read.
func ViewMessage(found *inspect.Snapshot, state inspect.State) Message {
	headers, _ := message.CutUID(found.Headers)
	headers, tags := message.CutTags(message.CutFirst(headers))
	if headers == nil {
		headers = map[string]string{}
	}
	sealedBy, _ := found.SealedBy()
	m := Message{
		ID: found.ID, Key: found.Key, Queue: found.Queue, Topic: found.Topic, State: string(state),
		DueAt: Stamp(found.DueAt), ScheduledAt: Stamp(found.ScheduledAt), Attempt: found.Attempt,
		Reason: found.Reason, End: death(found), MaybePublished: found.MaybePublished,
		Tags: append([]string{}, tags...), Headers: headers, SealedBy: sealedBy,
	}
	if found.Err != nil {
		m.Reason = found.Err.Error()
	}
	return m
}

// SetBody adds the payload.
func (m *Message) SetBody(body []byte) {
	if utf8.Valid(body) {
		m.Body = new(string(body))
		return
	}
	m.BodyBase64 = new(base64.StdEncoding.EncodeToString(body))
}

// FoundMessage is a message, or the end of one in the queue's history.
type FoundMessage struct {
	inspect.Snapshot

	State inspect.State
	// HasEnded is set if only its end is known.
	HasEnded bool
}

// Get finds a message, or its end. Its error is [delay.ErrNotFound] if there is neither.
func (q *Queue) Get(ctx context.Context, ref delay.Ref) (found FoundMessage, err error) {
	if err := message.CheckIdentity(ref.ID, ref.Key); err != nil {
		return found, fmt.Errorf("%w: %w", delay.ErrInvalid, err)
	}
	var ok bool
	if found.Snapshot, ok, err = inspect.Get(ctx, q.Store, ref.ID, ref.Key); err != nil {
		return found, err
	}
	switch {
	case ok:
		found.State = stateOf(&found.Snapshot)
	case found.End == nil:
		return found, delay.ErrNotFound
	default: // What the history has of it.
		end := found.End
		found.HasEnded, found.State = true, inspect.State(end.Kind.String())
		found.Message = message.Message{ID: ref.ID, Key: ref.Key, Queue: q.Name, Topic: end.Topic, DueAt: end.DueAt, Attempt: end.Attempt}
	}
	return found, nil
}

func stateOf(found *inspect.Snapshot) inspect.State {
	switch {
	case found.Code == store.InFlight:
		return inspect.StateInFlight
	case found.Code == store.Dead:
		return inspect.StateDead
	case found.Parked != nil:
		return inspect.StateParked
	}
	return inspect.StateScheduled
}

// View is the message as programs see it.
func (l *FoundMessage) View() Message {
	m := ViewMessage(&l.Snapshot, l.State)
	if l.Parked != nil {
		m.Route, m.Reason = l.Parked.Route, l.Parked.Reason
	}
	if m.End == nil && l.End != nil {
		m.End = viewEnd(l.End)
	}
	if l.HasEnded {
		m.Reason = m.End.Reason
	}
	return m
}

// List returns a page of messages; none of a queue that nobody has ever used.
func (q *Queue) List(ctx context.Context, request inspect.ListRequest) (inspect.Page, error) {
	page, err := q.Admin().List(ctx, request)
	if errors.Is(err, delay.ErrNoLayout) {
		return inspect.Page{}, nil
	}
	return page, err
}

// ChangeResult is the result of a change of one message.
type ChangeResult struct {
	Status         string `json:"status" enum:"cancelled,rescheduled"`
	MaybePublished bool   `json:"maybe_published" doc:"A copy may have been published before."`
	NotDurable     bool   `json:"not_durable,omitempty" doc:"Done, but not confirmed in time as the queue's durability asks."`
}

// Cancel cancels a message.
func (q *Queue) Cancel(ctx context.Context, ref delay.Ref, options ...delay.CallOption) (ChangeResult, error) {
	return changed("cancelled", q.Client().Cancel(ctx, ref, options...))
}

// Reschedule moves a message to another due time.
func (q *Queue) Reschedule(ctx context.Context, ref delay.Ref, when delay.When, options ...delay.CallOption) (ChangeResult, error) {
	return changed("rescheduled", q.Client().Reschedule(ctx, ref, when, options...))
}

// PublishNow makes a message due now.
func (q *Queue) PublishNow(ctx context.Context, ref delay.Ref) (ChangeResult, error) {
	return changed("rescheduled", q.Client().PublishNow(ctx, ref))
}

// changed returns what was done; an answer such as maybe published is not an error, since it was done.
func changed(status string, err error) (ChangeResult, error) {
	c := ChangeResult{Status: status, MaybePublished: errors.Is(err, delay.ErrMaybePublished), NotDurable: errors.Is(err, delay.ErrNotDurable)}
	if delay.Done(err) {
		err = nil
	}
	return c, err
}
