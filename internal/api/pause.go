package api

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/pause"
)

// pauses has the calls that stop a queue or a topic of it, and let it go on.
type pauses struct{ *core }

func (p *pauses) register() {
	register(p.core, operation{
		id: "pause", method: http.MethodPost, path: "/queues/{queue}:pause", roles: operators,
		summary: "Publish nothing of the queue, or of one topic of it, until it is resumed; what waits goes on waiting",
	}, p.pause)
	register(p.core, operation{
		id: "resume", method: http.MethodPost, path: "/queues/{queue}:resume", roles: operators,
		summary: "Let the queue, or one topic of it, go on",
	}, p.resume)
}

type pauseInput struct {
	QueueParam

	Body *struct {
		Topic string `json:"topic,omitempty" doc:"Only this topic; the whole queue without it."`
	}
}

func (in *pauseInput) topic() string {
	if in.Body == nil {
		return ""
	}
	return in.Body.Topic
}

// Paused is whether a queue, or a topic of it, is paused.
type Paused struct {
	Topic  string `json:"topic" doc:"Empty: the whole queue."`
	Paused bool   `json:"paused"`
	Since  string `json:"since,omitempty" format:"date-time" doc:"Since when it is, or was; not there where it was not."`
	By     string `json:"by,omitempty" doc:"Who has paused it; not there where that is not known."`
}

type pausedOutput struct{ Body Paused }

func (p *pauses) pause(ctx context.Context, in *pauseInput) (*pausedOutput, error) {
	by := callOf(ctx).Name
	return p.setPaused(ctx, in, "pause", true, func(admin *inspect.Admin, ctx context.Context, topic string) (time.Time, error) {
		return admin.Pause(ctx, topic, by)
	})
}

func (p *pauses) resume(ctx context.Context, in *pauseInput) (*pausedOutput, error) {
	return p.setPaused(ctx, in, "resume", false, (*inspect.Admin).Resume)
}

func (p *pauses) setPaused(
	ctx context.Context, in *pauseInput, action string, paused bool, do func(*inspect.Admin, context.Context, string) (time.Time, error),
) (*pausedOutput, error) {
	topic := in.topic()
	if caller := callOf(ctx); !caller.SeesAllTopics() && !caller.MaySee(topic) {
		return nil, forbidden(caller.Name + " may use certain topics only: name one as topic")
	}
	since, err := do(inspect.NewAdmin(p.config.Queues[in.Queue].Store), ctx, topic)
	made := change{action: action, topic: topic, answer: "done"}
	if err != nil {
		made.answer = problem(err).Code
	}
	p.audited(ctx, in.Queue, made)
	if err != nil {
		return nil, err
	}
	return &pausedOutput{Paused{Topic: topic, Paused: paused, Since: stamp(since)}}, nil
}

// pausedView are the pauses of a queue: the whole queue first, then its topics.
func pausedView(paused map[string]pause.Pause) []Paused {
	list := []Paused{}
	for _, topic := range slices.Sorted(maps.Keys(paused)) {
		list = append(list, Paused{Topic: topic, Paused: true, Since: stamp(paused[topic].Since), By: paused[topic].By})
	}
	return list
}
