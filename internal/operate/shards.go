package operate

import (
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

// ShardView is a shard as it is now.
type ShardView struct {
	Queue       string      `json:"queue"`
	Shard       int         `json:"shard"`
	Shards      int         `json:"shards" doc:"How many the queue has in the layout in use; others are of an earlier one."`
	Holder      string      `json:"holder" doc:"The instance that polls it; empty if there is none, and then nothing is published from it."`
	Epoch       string      `json:"epoch" doc:"The layout to which it is bound."`
	Drained     bool        `json:"drained" doc:"No message of an earlier layout is left in it."`
	Waiting     int64       `json:"waiting"`
	Due         int64       `json:"due"`
	Parked      int64       `json:"parked"`
	InFlight    int64       `json:"in_flight"`
	Dead        int64       `json:"dead"`
	OldestDue   float64     `json:"oldest_due_age_s" doc:"For how many seconds the oldest message has been due; 0 if none is."`
	NextDue     string      `json:"next_due_at,omitempty" format:"date-time" doc:"When the first message that is not parked is due."`
	Routes      []RouteView `json:"routes" nullable:"false" doc:"The routes for which messages are parked. If the whole queue is paused, a route without a name stands for the waiting messages that are not parked."`
	Unconfirmed string      `json:"unconfirmed,omitempty" doc:"Why nothing is published, if Redis does not confirm what the queue's durability asks."`
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

// ViewShards are a queue's shards. unconfirmed is what [store.Queue.Unconfirmed] has returned.
func ViewShards(queue string, stats *inspect.QueueStats, unconfirmed []error) []ShardView {
	views := make([]ShardView, len(stats.Shards))
	for i := range stats.Shards {
		s := &stats.Shards[i]
		v := ShardView{
			Queue: queue, Shard: i, Shards: stats.Layout.Shards, Holder: message.InstanceName(s.Holder), Epoch: s.Epoch, Drained: s.Drained || len(stats.Layout.Earlier) == 0,
			Waiting: s.Waiting, Due: s.Due, Parked: s.Parked, InFlight: s.InFlight, Dead: s.Dead,
			OldestDue: seconds(s.OldestDueAge), NextDue: Stamp(s.NextDue), Routes: ViewRoutes(queue, s.Routes),
		}
		if pause, isPaused := stats.Paused[""]; isPaused {
			v.Routes = append(v.Routes, RouteView{Queue: queue, Reason: "paused", Since: Stamp(pause.Since), Messages: int(s.Waiting - s.Parked)})
		}
		if i < len(unconfirmed) && unconfirmed[i] != nil {
			v.Unconfirmed = unconfirmed[i].Error()
		}
		views[i] = v
	}
	return views
}

// ViewRoutes are the routes of a queue that messages are parked for.
func ViewRoutes(queue string, parked []message.ParkedRoute) []RouteView {
	routes := make([]RouteView, len(parked))
	for i, p := range parked {
		routes[i] = RouteView{
			Queue: queue, Route: p.Route, Reason: p.Reason, Since: Stamp(p.Since), Messages: p.Messages, Oldest: Stamp(p.Oldest),
		}
	}
	return routes
}
