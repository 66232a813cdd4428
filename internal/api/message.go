package api

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"unicode/utf8"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

// messages has the calls for a single message.
type messages struct{ *core }

func (m *messages) register() {
	const path = "/queues/{queue}/messages/{id}"
	register(m.core, operation{id: "get", method: http.MethodGet, path: path, roles: everybody, summary: "Show a message"}, m.get)
	register(m.core, operation{id: "cancel", method: http.MethodDelete, path: path, roles: producers, summary: "Cancel a message"}, m.cancel)
	register(m.core, operation{
		id: "reschedule", method: http.MethodPost, path: path + ":reschedule", roles: producers,
		summary: "Move a message to another due time; a dead letter is put back, due then",
	}, m.reschedule)
	register(m.core, operation{
		id: "publishNow", method: http.MethodPost, path: path + ":publish-now", roles: producers,
		summary: "Make a message due now; a dead letter is put back, a parked one leaves when its route is there again",
	}, m.publishNow)
	m.registerCancelAll()
}

// MessageParam names the message of a call.
type MessageParam struct {
	QueueParam

	ID  string `path:"id" doc:"The message's id; a slash in it may be written as it is, or as %2F. Clients that take . and .. for a way up give - and dots=1 or dots=2 in the query." example:"order-42/timeout"`
	Key string `query:"key" doc:"The message's key; empty for a message without one."`
}

func (p *MessageParam) ref() delay.Ref { return delay.Ref{ID: p.ID, Key: p.Key} }

// Message is a message as it is now.
type Message struct {
	ID             string            `json:"id"`
	Key            string            `json:"key"`
	Topic          string            `json:"topic"`
	State          string            `json:"state" enum:"scheduled,parked,in_flight,dead,published,cancelled,dropped,purged" doc:"Where it is. What is parked waits until its route is there again. The last four are told by the queue's history, if it keeps one."`
	DueAt          string            `json:"due_at,omitempty" format:"date-time"`
	ScheduledAt    string            `json:"scheduled_at,omitempty" format:"date-time" doc:"When it was accepted first."`
	Attempt        int               `json:"attempt" doc:"The number of the next attempt to publish it, or of the running one."`
	Reason         string            `json:"reason,omitempty" doc:"Why it is parked, dead, or has ended."`
	End            *End              `json:"end,omitempty" doc:"What became of it; of one that lives again, or has another's identity, what became of that before."`
	Route          string            `json:"route,omitempty" doc:"The route that it is parked for."`
	MaybePublished bool              `json:"maybe_published" doc:"A copy may be at the broker already."`
	Tags           []string          `json:"tags" nullable:"false"`
	Headers        map[string]string `json:"headers" nullable:"false" doc:"With delay-sealed, which names a key, where the payload is encrypted."`
	Body           *string           `json:"body,omitempty" doc:"The payload, where it was asked for and is text. An encrypted one is shown only where encryption.show_bodies says so."`
	BodyBase64     *string           `json:"body_base64,omitempty" doc:"The same, where it is no text."`
}

// toMessage is a message of the store; reading tells what of it cannot be read.
func toMessage(found *inspect.Found, state inspect.State) Message {
	headers, _ := message.CutUID(found.Headers)
	headers, tags := message.CutTags(headers)
	m := Message{
		ID: found.ID, Key: found.Key, Topic: found.Topic, State: string(state),
		DueAt: stamp(found.DueAt), ScheduledAt: stamp(found.ScheduledAt), Attempt: found.Attempt,
		Reason: found.Reason, End: death(found), MaybePublished: found.MaybePublished,
		Headers: headers, Tags: append([]string{}, tags...), // Never null.
	}
	if m.Headers == nil {
		m.Headers = map[string]string{}
	}
	if found.Err != nil {
		m.Reason = found.Err.Error()
	}
	return m
}

// withBody adds the payload.
func (m *Message) withBody(body []byte) {
	if utf8.Valid(body) {
		text := string(body)
		m.Body = &text
		return
	}
	text := base64.StdEncoding.EncodeToString(body)
	m.BodyBase64 = &text
}

type getInput struct {
	MessageParam

	WithBody bool `query:"body" doc:"With the payload."`
}

type messageOutput struct{ Body Message }

func (m *messages) get(ctx context.Context, in *getInput) (*messageOutput, error) {
	found, err := m.find(ctx, in.Queue, in.ref())
	switch {
	case errors.Is(err, delay.ErrNotFound) && found.End != nil && callOf(ctx).MaySee(found.End.Topic):
		return &messageOutput{toEnded(in.ref(), found.End)}, nil
	case err != nil:
		return nil, err
	}
	state := inspect.StateScheduled
	switch found.Code { //nolint:exhaustive // A message is in one of three places.
	case store.InFlight:
		state = inspect.StateInFlight
	case store.Dead:
		state = inspect.StateDead
	}
	out := &messageOutput{toMessage(&found, state)}
	if found.Parked != nil {
		out.Body.State, out.Body.Route, out.Body.Reason = string(inspect.StateParked), found.Parked.Route, found.Parked.Reason
	}
	if out.Body.End == nil && found.End != nil && callOf(ctx).MaySee(found.End.Topic) {
		out.Body.End = toEnd(found.End)
	}
	if in.WithBody && m.mayShow(&found.Message) {
		out.Body.withBody(found.Body)
		m.auditedRead(ctx, in.Queue, change{action: "read body", id: in.ID, key: in.Key, topic: found.Topic})
	}
	return out, nil
}

// mayShow reports whether the body is clear, or was made so.
func (m *messages) mayShow(found *message.Message) bool {
	if _, isSealed := found.SealedBy(); !isSealed {
		return true
	}
	return m.config.Open != nil && m.config.Open(found) == nil
}

// find is a message that the caller may see.
func (m *messages) find(ctx context.Context, queue string, ref delay.Ref) (inspect.Found, error) {
	if err := message.CheckIdentity(ref.ID, ref.Key); err != nil {
		return inspect.Found{}, fmt.Errorf("%w: %w", delay.ErrInvalid, err)
	}
	found, ok, err := inspect.Get(ctx, m.config.Queues[queue].Store, ref.ID, ref.Key)
	if err == nil && !ok {
		err = delay.ErrNotFound
		if ref.Key == "" && found.End == nil {
			// The client looks whether the key was forgotten. What it found by itself has come since.
			if _, looked := m.config.Queues[queue].Clients[delay.Reject].Get(ctx, ref); looked != nil {
				err = hideKey(ctx, looked)
			}
		}
	}
	if caller := callOf(ctx); err == nil && !caller.MaySee(found.Topic) {
		err = forbidden(caller.Name + " may not see messages of this topic")
	}
	return found, err
}

// hideKey makes "not found" of an error that tells under which key a message of the id is
// there, where the caller may not see all topics: it may be another's.
func hideKey(ctx context.Context, err error) error {
	var refused *delay.InvalidError
	if errors.As(err, &refused) && refused.Field == "key" && refused.Value == "" && len(callOf(ctx).Topics()) > 0 {
		return delay.ErrNotFound
	}
	return err
}

// Changed is what became of a message.
type Changed struct {
	Status         string `json:"status" enum:"cancelled,rescheduled"`
	MaybePublished bool   `json:"maybe_published" doc:"A copy may have been published before."`
	NotDurable     bool   `json:"not_durable,omitempty" doc:"Done, but not confirmed in time as the queue's durability asks."`
}

type changedOutput struct{ Body Changed }

func (m *messages) cancel(ctx context.Context, in *MessageParam) (*changedOutput, error) {
	return m.change(ctx, in, "cancel", "cancelled", func(c *delay.Client) error { return c.Cancel(ctx, in.ref()) })
}

type rescheduleInput struct {
	MessageParam

	Body When
}

func (m *messages) reschedule(ctx context.Context, in *rescheduleInput) (*changedOutput, error) {
	when, err := in.Body.parse()
	if err != nil {
		return nil, err
	}
	return m.change(ctx, &in.MessageParam, "reschedule", "rescheduled", func(c *delay.Client) error {
		return c.Reschedule(ctx, in.ref(), when)
	})
}

func (m *messages) publishNow(ctx context.Context, in *MessageParam) (*changedOutput, error) {
	return m.change(ctx, in, "publish-now", "rescheduled", func(c *delay.Client) error { return c.PublishNow(ctx, in.ref()) })
}

// change makes one change of a message, and writes it down.
func (m *messages) change(ctx context.Context, in *MessageParam, verb, done string, do func(*delay.Client) error) (*changedOutput, error) {
	err := do(m.config.Queues[in.Queue].Clients[delay.Reject])
	out := &changedOutput{Changed{
		Status: done, MaybePublished: errors.Is(err, delay.ErrMaybePublished), NotDurable: errors.Is(err, delay.ErrNotDurable),
	}}
	if out.Body.MaybePublished || out.Body.NotDurable { // It is done.
		err = nil
	}
	made := change{action: verb, id: in.ID, key: in.Key, answer: done}
	if err = hideKey(ctx, err); err != nil {
		made.answer = problem(err).Code
	}
	m.auditedCall(ctx, in.Queue, made)
	if err != nil {
		return nil, err
	}
	return out, nil
}
