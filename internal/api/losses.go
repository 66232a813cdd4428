package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

// losses has the call by which an operator says that a loss is known.
type losses struct{ *core }

func (l *losses) register() {
	register(l.core, operation{
		id: "acknowledgeLosses", method: http.MethodPost, path: "/queues/{queue}/losses:acknowledge", roles: operators,
		summary: "Say that losses of Redis are known: the overview tells of them no more",
	}, l.acknowledge)
}

type acknowledgeInput struct {
	QueueParam

	Body struct {
		Losses []string `json:"losses" minItems:"1" maxItems:"100" nullable:"false" doc:"Their ids, from the overview."`
	}
}

type acknowledgeOutput struct {
	Body struct {
		Acknowledged int `json:"acknowledged" doc:"How many of them were not acknowledged before."`
	}
}

func (l *losses) acknowledge(ctx context.Context, in *acknowledgeInput) (*acknowledgeOutput, error) {
	if caller := callOf(ctx); !caller.SeesAllTopics() {
		return nil, forbidden(caller.Name + " may use certain topics only, and a loss is of all")
	}
	out := &acknowledgeOutput{}
	n, err := queuesOf(ctx)[in.Queue].Admin().Acknowledge(ctx, in.Body.Losses)
	l.audited(ctx, in.Queue, inspect.Change{Action: "acknowledge loss", What: strings.Join(in.Body.Losses, " ")}, err)
	out.Body.Acknowledged = n
	return out, err
}
