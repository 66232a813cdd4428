package api

import (
	"context"
	"maps"
	"net/http"
	"slices"

	"github.com/delaybridge/delaybridge/internal/operate"
)

// queues has the calls that report the state of queues.
type queues struct {
	*core

	view *overview
}

func (q *queues) register() {
	register(q.core, operation{
		id: "overview", method: http.MethodGet, path: "/queues", roles: viewers,
		summary: "Show what all queues hold, how fast they are, and whether their sinks are up",
	}, q.showQueues)
	register(q.core, operation{
		id: "queue", method: http.MethodGet, path: "/queues/{queue}", roles: viewers,
		summary: "Show what a queue holds, and how fast it is",
	}, q.showQueue)
	register(q.core, operation{
		id: "sinks", method: http.MethodGet, path: "/sinks", roles: viewers,
		summary: "Show which sinks are up, or why not, and which routes messages are parked for",
	}, q.showSinks)
	register(q.core, operation{
		id: "usage", method: http.MethodGet, path: "/usage", roles: viewers,
		summary: "Show what queues take of Redis and have published, each and by owner",
	}, q.showUsage)
}

// SinkView is a sink as it is now.
type SinkView struct {
	Name   string              `json:"name"`
	Type   string              `json:"type" doc:"The kind of broker, as the configuration calls it."`
	Up     bool                `json:"up" doc:"Whether its broker answers the instance that was asked."`
	Detail string              `json:"detail,omitempty" doc:"Why it is not up."`
	Since  string              `json:"since,omitempty" format:"date-time" doc:"Since when it is up, or down, as far as the instance that was asked knows."`
	Queues []string            `json:"queues" nullable:"false" doc:"The queues that publish to it."`
	Routes []operate.RouteView `json:"routes" nullable:"true" doc:"The routes for which messages are parked; null if they are known for no queue."`
	// Unknown is there so that an empty list of routes calms nobody.
	Unknown []string `json:"unknown,omitempty" doc:"The queues whose parked routes are not known, since Redis did not answer."`
}

// Overview is everything at a glance.
type Overview struct {
	At       string              `json:"at" format:"date-time" doc:"When the figures were read, by the clock of the instance that was asked."`
	Age      float64             `json:"age_s" doc:"How many seconds ago that was."`
	Caller   CallerView          `json:"caller"`
	Instance string              `json:"instance" doc:"The instance that was asked."`
	Queues   []operate.QueueView `json:"queues" nullable:"false"`
	Sinks    []SinkView          `json:"sinks" nullable:"false"`

	Budgets map[string]*operate.RoomView `json:"budgets" doc:"By queue, for those with a budget: approximate memory use in Redis and the budget, in bytes."`
	Redis   *operate.RoomView            `json:"redis_memory,omitempty" doc:"How much of its maxmemory Redis uses; in a Cluster, on the primary that will be full first. Absent without a maxmemory."`
}

// overview is what the caller may see.
func (q *queues) overview(ctx context.Context) Overview {
	last := q.view.look(ctx)
	o := Overview{At: operate.Stamp(last.at), Age: last.age(), Caller: viewCaller(callOf(ctx).Caller, q.config.Guard), Instance: q.config.Instance, Queues: []operate.QueueView{}, Budgets: map[string]*operate.RoomView{}}
	names := namesOf(ctx, last.queues)
	for _, name := range names {
		o.Queues = append(o.Queues, last.view(name))
		if last.looks[name].Err != nil {
			continue // What is known of its room is as old.
		}
		rooms := q.config.Rooms(name)
		if rooms.Budget != nil {
			o.Budgets[name] = operate.ViewRoom(rooms.Budget)
		}
		o.Redis = operate.ViewRoom(rooms.Redis) // All queues are in the same.
	}
	o.Sinks = q.sinks(last, names)
	return o
}

// sinks are those of the queues of these names.
func (q *queues) sinks(last *snapshot, names []string) []SinkView {
	views := map[string]*SinkView{}
	for _, s := range q.config.Sinks() {
		views[s.Name] = &SinkView{Name: s.Name, Type: string(s.Type), Up: s.Up, Detail: s.Detail, Since: operate.Stamp(s.Since)}
	}
	for _, name := range names {
		if v := views[last.queues[name].Sink]; v != nil {
			v.Queues = append(v.Queues, name)
			if last.looks[name].Err != nil {
				v.Unknown = append(v.Unknown, name)
				continue
			}
			v.Routes = append(append([]operate.RouteView{}, v.Routes...), operate.ViewRoutes(name, last.looks[name].Sum.Routes)...)
		}
	}
	list := []SinkView{}
	for _, name := range slices.Sorted(maps.Keys(views)) {
		if v := views[name]; len(v.Queues) > 0 {
			list = append(list, *v)
		}
	}
	return list
}

type overviewOutput struct{ Body Overview }

func (q *queues) showQueues(ctx context.Context, _ *struct{}) (*overviewOutput, error) {
	return &overviewOutput{q.overview(ctx)}, nil
}

type queueOutput struct{ Body operate.QueueDetail }

func (q *queues) showQueue(ctx context.Context, in *QueueParam) (*queueOutput, error) {
	last := q.view.look(ctx)
	look, err := last.of(in.Queue)
	if err != nil {
		return nil, err
	}
	return &queueOutput{look.Detail(last.view(in.Queue), q.config.Rules(in.Queue), q.config.Rooms(in.Queue))}, nil
}

type usageOutput struct{ Body operate.Usage }

func (q *queues) showUsage(ctx context.Context, _ *struct{}) (*usageOutput, error) {
	last := q.view.look(ctx)
	var looks []*operate.Look
	for _, name := range namesOf(ctx, last.queues) {
		looks = append(looks, last.looks[name])
	}
	return &usageOutput{operate.ViewUsage(looks)}, nil
}

type sinksOutput struct {
	Body struct {
		Sinks []SinkView `json:"sinks" nullable:"false"`
	}
}

func (q *queues) showSinks(ctx context.Context, _ *struct{}) (*sinksOutput, error) {
	out := &sinksOutput{}
	last := q.view.look(ctx)
	out.Body.Sinks = q.sinks(last, namesOf(ctx, last.queues))
	return out, nil
}
