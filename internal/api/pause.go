package api

import (
	"context"
	"net/http"

	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/operate"
)

// pauses has the calls that pause and resume a queue or one of its topics.
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

type pausedOutput struct{ Body operate.PauseChange }

func (p *pauses) pause(ctx context.Context, in *pauseInput) (*pausedOutput, error) {
	return p.setPaused(ctx, in, "pause", func(q *operate.Queue) (operate.PauseChange, error) {
		return q.Pause(ctx, in.topic(), callOf(ctx).Name)
	})
}

func (p *pauses) resume(ctx context.Context, in *pauseInput) (*pausedOutput, error) {
	return p.setPaused(ctx, in, "resume", func(q *operate.Queue) (operate.PauseChange, error) { return q.Resume(ctx, in.topic()) })
}

func (p *pauses) setPaused(
	ctx context.Context, in *pauseInput, action string, do func(*operate.Queue) (operate.PauseChange, error),
) (*pausedOutput, error) {
	topic := in.topic()
	if caller := callOf(ctx); !caller.SeesAllTopics() && !caller.MaySee(topic) {
		return nil, forbidden(caller.Name + " may use certain topics only: name one as topic")
	}
	now, err := do(queuesOf(ctx)[in.Queue])
	p.audited(ctx, in.Queue, inspect.Change{Action: action, Topic: topic}, err)
	if err != nil {
		return nil, err
	}
	return &pausedOutput{now}, nil
}
