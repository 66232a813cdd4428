package main

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
)

// riverJobs is River in PostgreSQL, with its defaults but for the number of
// handlers.
type riverJobs struct {
	pool   *pgxpool.Pool
	insert *river.Client[pgx.Tx]
	server *river.Client[pgx.Tx] // nil until it delivers
	taker  taker
}

// riverArgs are the message.
type riverArgs struct {
	ID   string `json:"id"`
	Body string `json:"body"`
}

// Kind implements [river.JobArgs].
func (riverArgs) Kind() string { return topic }

// riverHandler notes what it is given.
type riverHandler struct {
	river.WorkerDefaults[riverArgs]

	*taker
}

// Work implements [river.Worker].
func (h *riverHandler) Work(_ context.Context, j *river.Job[riverArgs]) error {
	h.note(j.Args.ID)
	return nil
}

func newRiver(ctx context.Context, server *service.Server) (*riverJobs, error) {
	config, err := pgxpool.ParseConfig(server.URL())
	if err != nil {
		return nil, err
	}
	config.MaxConns = 64
	p := &riverJobs{}
	if p.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(p.pool), nil)
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err == nil {
		p.insert, err = river.NewClient(riverpgxv5.New(p.pool), &river.Config{})
	}
	if err != nil {
		p.pool.Close()
		return nil, err
	}
	return p, nil
}

func (p *riverJobs) schedule(ctx context.Context, l load) error {
	return l.by(ctx, func(ctx context.Context, from, n int) error {
		params := make([]river.InsertManyParams, n)
		for i := range params {
			params[i] = river.InsertManyParams{
				Args:       riverArgs{ID: identity(from + i), Body: string(body)},
				InsertOpts: &river.InsertOpts{ScheduledAt: l.dueAt(from + i)},
			}
		}
		if n == 1 {
			_, err := p.insert.Insert(ctx, params[0].Args, params[0].InsertOpts)
			return err
		}
		_, err := p.insert.InsertManyFast(ctx, params)
		return err
	})
}

func (p *riverJobs) deliver(ctx context.Context, to *arrivals) (err error) {
	p.taker.to.Store(to)
	if p.server != nil {
		return nil
	}
	handlersOf := river.NewWorkers()
	river.AddWorker(handlersOf, &riverHandler{taker: &p.taker})
	p.server, err = river.NewClient(riverpgxv5.New(p.pool), &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: handlers}}, Workers: handlersOf,
	})
	if err != nil {
		return err
	}
	return p.server.Start(context.WithoutCancel(ctx))
}

// bytes is what the table and its indexes take, on the disk.
func (p *riverJobs) bytes(ctx context.Context) (size float64, err error) {
	err = p.pool.QueryRow(ctx, "SELECT pg_total_relation_size('river_job')").Scan(&size)
	return size, err
}

func (p *riverJobs) close(ctx context.Context) (err error) {
	if p.server != nil {
		err = p.server.Stop(ctx)
	}
	p.pool.Close()
	return err
}
