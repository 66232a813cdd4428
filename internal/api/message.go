package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/operate"
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

type getInput struct {
	MessageParam

	WithBody bool `query:"body" doc:"With the payload."`
}

type messageOutput struct{ Body operate.Message }

func (m *messages) get(ctx context.Context, in *getInput) (*messageOutput, error) {
	found, err := m.find(ctx, in.Queue, in.ref())
	if err != nil {
		return nil, err
	}
	out := &messageOutput{found.View()}
	if in.WithBody && !found.HasEnded && m.mayShow(&found.Snapshot.Message) {
		out.Body.SetBody(found.Snapshot.Body)
		m.auditedRead(ctx, in.Queue, inspect.Change{Action: "read body", What: in.ID, Key: in.Key, Topic: found.Snapshot.Topic})
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

// find is a message that the caller may see, with the end that it may see.
func (m *messages) find(ctx context.Context, queue string, ref delay.Ref) (operate.FoundMessage, error) {
	caller, q := callOf(ctx), queuesOf(ctx)[queue]
	found, err := q.Get(ctx, ref)
	if errors.Is(err, delay.ErrNotFound) && ref.Key == "" {
		// The client looks whether the key was forgotten. What it found by itself has come since.
		if _, looked := q.Client().Get(ctx, ref); looked != nil {
			err = hideKey(ctx, looked)
		}
	}
	switch {
	case err != nil:
	case found.HasEnded && !caller.MaySee(found.End.Topic):
		err = delay.ErrNotFound
	case !caller.MaySee(found.Snapshot.Topic):
		err = forbidden(caller.Name + " may not see messages of this topic")
	case found.End != nil && !caller.MaySee(found.End.Topic):
		found.End = nil
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

type changedOutput struct{ Body operate.ChangeResult }

func (m *messages) cancel(ctx context.Context, in *MessageParam) (*changedOutput, error) {
	now, err := queuesOf(ctx)[in.Queue].Cancel(ctx, in.ref())
	return m.changed(ctx, in, "cancel", now, err)
}

type rescheduleInput struct {
	MessageParam

	Body operate.When
}

func (m *messages) reschedule(ctx context.Context, in *rescheduleInput) (*changedOutput, error) {
	when, err := in.Body.Parse()
	if err != nil {
		return nil, err
	}
	now, err := queuesOf(ctx)[in.Queue].Reschedule(ctx, in.ref(), when)
	return m.changed(ctx, &in.MessageParam, "reschedule", now, err)
}

func (m *messages) publishNow(ctx context.Context, in *MessageParam) (*changedOutput, error) {
	now, err := queuesOf(ctx)[in.Queue].PublishNow(ctx, in.ref())
	return m.changed(ctx, in, "publish-now", now, err)
}

// changed answers a change of a message, and writes it down.
func (m *messages) changed(ctx context.Context, in *MessageParam, verb string, now operate.ChangeResult, err error) (*changedOutput, error) {
	err = hideKey(ctx, err)
	m.auditedCall(ctx, in.Queue, inspect.Change{Action: verb, What: in.ID, Key: in.Key, Answer: now.Status}, err)
	if err != nil {
		return nil, err
	}
	return &changedOutput{now}, nil
}
