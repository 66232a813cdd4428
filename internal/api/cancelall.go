package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/operate"
)

// cancelAllTime is how long one call cancels what a filter means.
const cancelAllTime = 10 * time.Second

// registerCancelAll registers the call that is for producers what a job is for operators.
func (m *messages) registerCancelAll() {
	register(m.core, operation{
		id: "cancelTagged", method: http.MethodDelete, path: "/queues/{queue}/messages", roles: producers,
		summary: "Cancel all messages of a tag, or of a key, that the caller may cancel one by one",
	}, m.cancelAll)
}

type cancelAllInput struct {
	QueueParam

	Tag string `query:"tag" doc:"Their tag. Give tag, key, or both."`
	Key string `query:"key" doc:"Their key."`
}

// CancelAllResult counts the results of a call.
type CancelAllResult struct {
	Done           int  `json:"done" doc:"Cancelled."`
	MaybePublished int  `json:"maybe_published" doc:"Cancelled, but a copy may have been published before."`
	TooLate        int  `json:"too_late" doc:"In flight: they are being published, or will wait again soon."`
	More           bool `json:"more" doc:"The call has used up its time and there are more messages: call again."`
	NotDurable     bool `json:"not_durable,omitempty" doc:"Done, but not confirmed in time as the queue's durability asks."`
}

type cancelAllOutput struct{ Body CancelAllResult }

func (m *messages) cancelAll(ctx context.Context, in *cancelAllInput) (*cancelAllOutput, error) {
	limited, cancel := context.WithTimeout(ctx, cancelAllTime)
	defer cancel()
	n, err := queuesOf(ctx)[in.Queue].Client().CancelAll(limited, delay.Filter{Tag: in.Tag, Key: in.Key})
	out := &cancelAllOutput{CancelAllResult{
		Done: n.Done, MaybePublished: n.MaybePublished, TooLate: n.TooLate, NotDurable: errors.Is(err, delay.ErrNotDurable),
		More: err != nil && n != (delay.CancelCount{}) && limited.Err() != nil && ctx.Err() == nil,
	}}
	if out.Body.More || out.Body.NotDurable {
		err = nil
	}
	m.auditedCall(ctx, in.Queue, inspect.Change{Action: "cancel all", What: operate.FilterText(&inspect.Filter{Tag: in.Tag, Key: in.Key})}, err)
	if err != nil {
		return nil, err
	}
	return out, nil
}
