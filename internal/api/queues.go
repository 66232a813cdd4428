package api

import (
	"context"
	"maps"
	"net/http"
	"slices"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// queues has the calls that tell how everything is.
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
}

// QueueView is a queue as it is now. Where Redis does not tell, there are no figures: none is
// 0 that is not known.
type QueueView struct {
	Name   string `json:"name"`
	Sink   string `json:"sink"`
	Shards *int   `json:"shards,omitempty" doc:"Not there, as all figures, where it is not known: see error."`
	// Held is less than Shards where no instance polls some of them.
	Held      *int      `json:"held,omitempty" doc:"How many of the shards are polled by an instance."`
	Waiting   *int64    `json:"waiting,omitempty" doc:"Messages that wait, parked ones and due ones among them."`
	Due       *int64    `json:"due,omitempty" doc:"Messages that wait, are due and not parked."`
	Parked    *int64    `json:"parked,omitempty" doc:"Messages whose route is unavailable."`
	InFlight  *int64    `json:"in_flight,omitempty"`
	Dead      *int64    `json:"dead,omitempty"`
	OldestDue *float64  `json:"oldest_due_age_s,omitempty" doc:"For how many seconds the first message has been due; 0 where none is."`
	NextDue   string    `json:"next_due_at,omitempty" format:"date-time" doc:"When the first message that is not parked is due."`
	Rates     *Rates    `json:"rates,omitempty" doc:"Not there where nobody has looked a little before, or what was counted then is lost."`
	Lateness  *Lateness `json:"lateness,omitempty" doc:"Not there where this instance has published nothing."`
	Paused    []Paused  `json:"paused" nullable:"true" doc:"What of it is paused: the whole queue, or topics; null where that is not known."`
	Losses    []Loss    `json:"losses" nullable:"true" doc:"What Redis has lost of it, and no operator has acknowledged; null where that is not known."`
	MadeAt    string    `json:"made_at,omitempty" format:"date-time" doc:"Since when it has what it has, by Redis' clock: what it had before, Redis has lost."`
	Error     string    `json:"error,omitempty" doc:"Why the numbers are not known."`
}

// Rates are how many messages a second, of the whole queue.
type Rates struct {
	Over      float64 `json:"over_s" doc:"Over how many seconds."`
	Scheduled float64 `json:"scheduled"`
	Published float64 `json:"published"`
	Cancelled float64 `json:"cancelled"`
	Dead      float64 `json:"dead"`
}

// Lateness is from the due time to the broker's acknowledgement, of what the instance
// that was asked has published.
type Lateness struct {
	Over     float64 `json:"over_s" doc:"Over how many seconds; 0: since the instance has started."`
	Messages uint64  `json:"messages"`
	P50      float64 `json:"p50_s"`
	P99      float64 `json:"p99_s"`
}

// rated are the counters that rates are made of.
var rated = []string{"scheduled", "published", "cancelled", "dead_lettered"}

// view is the queue as the snapshot has it.
func (s *snapshot) view(name, sink string) QueueView {
	q := s.queues[name]
	v := QueueView{Name: name, Sink: sink}
	if q.err != nil {
		v.Error = problem(q.err).Detail
		return v
	}
	sum := q.Sum()
	v.Shards, v.Held, v.Waiting, v.Due = new(len(q.Shards)), new(q.Held()), &sum.Waiting, &sum.Due
	v.Parked, v.InFlight, v.Dead = &sum.Parked, &sum.InFlight, &sum.Dead
	v.OldestDue, v.NextDue = new(sum.OldestDueAge.Seconds()), stamp(sum.NextDue)
	v.Paused, v.Losses, v.MadeAt = pausedView(q.Paused), lossViews(q.Losses), stamp(q.MadeAt())
	v.Rates, v.Lateness = s.rates(name), s.latenessOf(name)
	return v
}

// rates compares the queue's counters with earlier ones.
func (s *snapshot) rates(name string) *Rates {
	earlier := s.since(ratesOver)
	if earlier == nil || earlier.counters[name] == nil {
		return nil
	}
	over := s.at.Sub(earlier.at).Seconds()
	by := map[string]float64{}
	for _, counter := range rated {
		more := s.counters[name][counter] - earlier.counters[name][counter]
		if more < 0 {
			return nil // Redis has lost them, or shards that were dropped took theirs along.
		}
		by[counter] = float64(more) / over
	}
	return &Rates{Over: over, Scheduled: by["scheduled"], Published: by["published"], Cancelled: by["cancelled"], Dead: by["dead_lettered"]}
}

func (s *snapshot) latenessOf(name string) *Lateness {
	h, over := s.lateness[name], 0.0
	if earlier := s.since(latenessOver); earlier != nil {
		h, over = h.minus(earlier.lateness[name]), s.at.Sub(earlier.at).Seconds()
	}
	if h.count() == 0 {
		return nil
	}
	const half, nearlyAll = 0.5, 0.99
	return &Lateness{Over: over, Messages: h.count(), P50: h.quantile(half), P99: h.quantile(nearlyAll)}
}

// SinkView is a sink as it is now.
type SinkView struct {
	Name   string      `json:"name"`
	Type   string      `json:"type" doc:"The kind of broker, as the configuration calls it."`
	Up     bool        `json:"up" doc:"Its broker answers the instance that was asked."`
	Detail string      `json:"detail,omitempty" doc:"Why it is not up."`
	Since  string      `json:"since,omitempty" format:"date-time" doc:"Since when it is up, or not, as far as the instance that was asked knows."`
	Queues []string    `json:"queues" nullable:"false" doc:"The queues that publish to it."`
	Routes []RouteView `json:"routes" nullable:"true" doc:"The routes that messages are parked for; null where those of no queue are known."`
	// Unknown is there so that an empty list of routes calms nobody.
	Unknown []string `json:"unknown,omitempty" doc:"The queues whose parked routes are not known, since Redis does not tell."`
}

// RouteView is a route that messages are parked for.
type RouteView struct {
	Queue    string `json:"queue"`
	Route    string `json:"route"`
	Reason   string `json:"reason"`
	Since    string `json:"since,omitempty" format:"date-time"`
	Messages int    `json:"messages"`
	Oldest   string `json:"oldest_due_at,omitempty" format:"date-time"`
}

// parkedRoutes are those of a queue.
func parkedRoutes(queue string, parked []message.ParkedRoute) []RouteView {
	routes := make([]RouteView, len(parked))
	for i, p := range parked {
		routes[i] = RouteView{
			Queue: queue, Route: p.Route, Reason: p.Reason, Since: stamp(p.Since), Messages: p.Messages, Oldest: stamp(p.Oldest),
		}
	}
	return routes
}

// Overview is everything at a glance.
type Overview struct {
	At       string      `json:"at" format:"date-time" doc:"When the figures were read, by the clock of the instance that was asked."`
	Age      float64     `json:"age_s" doc:"How many seconds ago that was."`
	Caller   CallerView  `json:"caller"`
	Instance string      `json:"instance" doc:"The instance that was asked."`
	Queues   []QueueView `json:"queues" nullable:"false"`
	Sinks    []SinkView  `json:"sinks" nullable:"false"`

	Budgets map[string]*RoomView `json:"budgets" doc:"By queue: about how many bytes it takes in Redis, and may take. Those that have a budget."`
	Redis   *RoomView            `json:"redis_memory,omitempty" doc:"What Redis takes of its maxmemory; of a Cluster, the primary that is full first. Not there where none is set."`
}

// overview is what the caller may see.
func (q *queues) overview(ctx context.Context) Overview {
	last := q.view.look(ctx)
	o := Overview{At: stamp(last.at), Age: last.age(), Caller: viewCaller(callOf(ctx).Caller, q.config.Guard), Instance: q.config.Instance, Queues: []QueueView{}, Budgets: map[string]*RoomView{}}
	names := q.names(ctx)
	for _, name := range names {
		o.Queues = append(o.Queues, last.view(name, q.config.Queues[name].Sink))
		if last.queues[name].err != nil {
			continue // What is known of its room is as old.
		}
		rooms := q.config.Rooms(name)
		if rooms.Budget != nil {
			o.Budgets[name] = NewRoomView(rooms.Budget)
		}
		o.Redis = NewRoomView(rooms.Redis) // All queues are in the same.
	}
	o.Sinks = q.sinks(last, names)
	return o
}

// sinks are those of the queues of these names.
func (q *queues) sinks(last *snapshot, names []string) []SinkView {
	views := map[string]*SinkView{}
	for _, s := range q.config.Sinks() {
		views[s.Name] = &SinkView{Name: s.Name, Type: string(s.Type), Up: s.Up, Detail: s.Detail, Since: stamp(s.Since)}
	}
	for _, name := range names {
		if v := views[q.config.Queues[name].Sink]; v != nil {
			v.Queues = append(v.Queues, name)
			if last.queues[name].err != nil {
				v.Unknown = append(v.Unknown, name)
				continue
			}
			v.Routes = append(append([]RouteView{}, v.Routes...), parkedRoutes(name, last.queues[name].Sum().Routes)...)
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

type queueOutput struct {
	Body struct {
		QueueView

		Age    float64   `json:"age_s" doc:"How many seconds ago the figures were read."`
		Rules  RulesView `json:"rules"`
		Budget *RoomView `json:"budget,omitempty" doc:"About how many bytes the queue takes in Redis, and may take. Not there where it has no budget."`
		Redis  *RoomView `json:"redis_memory,omitempty" doc:"What Redis takes of its maxmemory; of a Cluster, the primary that is full first. Not there where none is set."`
	}
}

func (q *queues) showQueue(ctx context.Context, in *QueueParam) (*queueOutput, error) {
	last := q.view.look(ctx)
	if err := last.queues[in.Queue].err; err != nil {
		return nil, err
	}
	out, rooms := &queueOutput{}, q.config.Rooms(in.Queue)
	out.Body.Age, out.Body.Rules = last.age(), q.config.Rules(in.Queue)
	out.Body.QueueView = last.view(in.Queue, q.config.Queues[in.Queue].Sink)
	out.Body.Budget, out.Body.Redis = NewRoomView(rooms.Budget), NewRoomView(rooms.Redis)
	return out, nil
}

type sinksOutput struct {
	Body struct {
		Sinks []SinkView `json:"sinks" nullable:"false"`
	}
}

func (q *queues) showSinks(ctx context.Context, _ *struct{}) (*sinksOutput, error) {
	out := &sinksOutput{}
	out.Body.Sinks = q.sinks(q.view.look(ctx), q.names(ctx))
	return out, nil
}
