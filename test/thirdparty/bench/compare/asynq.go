package main

import (
	"context"

	"github.com/hibiken/asynq"
)

// asynqTasks is github.com/hibiken/asynq with its defaults but for the number of
// handlers.
type asynqTasks struct {
	client *asynq.Client
	server *asynq.Server // nil until it delivers
	redis  *memory
	taker  taker
}

// handlers is how many messages asynq and BullMQ handle at a time.
const handlers = 100

func newAsynq(m *memory) *asynqTasks {
	return &asynqTasks{client: asynq.NewClientFromRedisClient(m.rdb), redis: m}
}

func (p *asynqTasks) schedule(ctx context.Context, l load) error {
	return l.by(ctx, func(ctx context.Context, from, _ int) error {
		_, err := p.client.EnqueueContext(ctx, asynq.NewTask(topic, body), asynq.TaskID(identity(from)), asynq.ProcessAt(l.dueAt(from)))
		return err
	})
}

func (p *asynqTasks) deliver(_ context.Context, to *arrivals) error {
	p.taker.to.Store(to)
	if p.server != nil {
		return nil
	}
	p.server = asynq.NewServerFromRedisClient(p.redis.rdb, asynq.Config{Concurrency: handlers, LogLevel: asynq.FatalLevel})
	return p.server.Start(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		p.taker.note(id)
		return nil
	}))
}

func (p *asynqTasks) close(context.Context) error {
	if p.server != nil {
		p.server.Shutdown()
	}
	return nil
}
