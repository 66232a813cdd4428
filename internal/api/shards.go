package api

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/operate"
)

// shards has the calls that tell who polls what.
type shards struct{ *queues }

func (s *shards) register() {
	register(s.core, operation{
		id: "shards", method: http.MethodGet, path: "/queues/{queue}/shards", roles: viewers,
		summary: "Show each shard: who polls it, and what it holds",
	}, s.showShards)
	register(s.core, operation{
		id: "instances", method: http.MethodGet, path: "/instances", roles: viewers,
		summary: "Show the bridges, and the shards that they poll",
	}, s.showInstances)
}

type shardsOutput struct {
	Body struct {
		Shards []operate.ShardView `json:"shards" nullable:"false"`
		Layout string              `json:"layout" doc:"The layout in use."`
		Age    float64             `json:"age_s" doc:"How many seconds ago the figures were read."`
		Count  int                 `json:"count" doc:"How many shards the queue has in that layout; others are of an earlier one."`
	}
}

func (s *shards) showShards(ctx context.Context, in *QueueParam) (*shardsOutput, error) {
	last := s.view.look(ctx)
	look, err := last.of(in.Queue)
	if err != nil {
		return nil, err
	}
	out := &shardsOutput{}
	out.Body.Age = last.age()
	out.Body.Layout, out.Body.Count = look.Layout.Epoch, look.Layout.Shards
	out.Body.Shards = operate.ViewShards(in.Queue, &look.QueueStats, s.config.Unconfirmed(in.Queue))
	return out, nil
}

// InstanceView is a bridge as the others see it.
type InstanceView struct {
	Instance string           `json:"instance"`
	Boot     string           `json:"boot" doc:"Distinguishes it from an earlier process of that name. A queue that the process has started again has another one."`
	Heard    string           `json:"heard_at" format:"date-time" doc:"Its last heartbeat, by Redis' clock. A dead one is listed for a while."`
	Silent   float64          `json:"silent_s" doc:"Seconds since its last heartbeat."`
	Shards   map[string][]int `json:"shards" nullable:"false" doc:"The shards that it polls, by queue; null for a queue if they are not known."`
}

type instancesOutput struct {
	Body struct {
		Instances []InstanceView `json:"instances" nullable:"false"`
	}
}

func (s *shards) showInstances(ctx context.Context, _ *struct{}) (*instancesOutput, error) {
	last := s.view.look(ctx)
	byName := map[string]*InstanceView{}
	for _, name := range namesOf(ctx, last.queues) {
		beats, now, err := last.queues[name].Admin().Instances(ctx)
		if errors.Is(err, delay.ErrNoLayout) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, beat := range beats {
			v := byName[beat.Instance]
			if v == nil {
				v = &InstanceView{Instance: message.InstanceName(beat.Instance), Shards: map[string][]int{}}
				v.Boot = beat.Instance[min(len(beat.Instance), len(v.Instance)+1):]
				byName[beat.Instance] = v
			}
			if heard := operate.Stamp(time.UnixMilli(beat.At)); heard > v.Heard {
				v.Heard, v.Silent = heard, max(0, float64(now.UnixMilli()-beat.At)/1000) //nolint:mnd // milliseconds
			}
			if v.Shards[name] = nil; last.looks[name].Err == nil {
				v.Shards[name] = []int{}
			}
		}
		shards := last.looks[name].Shards
		for i := range shards {
			if v := byName[shards[i].Holder]; v != nil {
				v.Shards[name] = append(v.Shards[name], i)
			}
		}
	}
	out := &instancesOutput{}
	out.Body.Instances = []InstanceView{}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		out.Body.Instances = append(out.Body.Instances, *byName[name])
	}
	return out, nil
}
