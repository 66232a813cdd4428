package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/delaybridge/delaybridge/internal/engine/store"
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

// Loss is what Redis has lost of a queue.
type Loss struct {
	ID       string `json:"id"`
	Kind     string `json:"kind" enum:"queue,shards,layout" doc:"All of the queue, shards and the messages in them, or only the layout, which was restored from the shards."`
	Shards   []int  `json:"shards,omitempty" doc:"The shards that were lost."`
	At       string `json:"at,omitempty" format:"date-time" doc:"When it was noticed."`
	Instance string `json:"instance,omitempty" doc:"Who noticed it."`
}

func lossViews(list []store.Loss) []Loss {
	views := make([]Loss, len(list))
	for i, l := range list {
		views[i] = Loss{ID: l.ID, Kind: string(l.Kind), Shards: l.Shards, At: stamp(l.At), Instance: l.Instance}
	}
	return views
}

type acknowledgeInput struct {
	QueueParam

	Body struct {
		Losses []string `json:"losses" minItems:"1" maxItems:"100" nullable:"false" doc:"Their ids, as the overview has them."`
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
	n, err := inspect.NewAdmin(l.config.Queues[in.Queue].Store).Acknowledge(ctx, in.Body.Losses)
	made := change{action: "acknowledge loss", id: strings.Join(in.Body.Losses, " "), answer: "done"}
	if err != nil {
		made.answer = problem(err).Code
	}
	l.audited(ctx, in.Queue, made)
	out.Body.Acknowledged = n
	return out, err
}
