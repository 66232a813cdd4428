package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
	"github.com/delaybridge/delaybridge/test/trial"
)

const (
	prefix = "bench"
	shards = 8
	// plainTable is an outbox that no relay looks at.
	plainTable = "plain_outbox"
	// A server's of its own machine; all else as the database comes.
	postgresConfig = "shared_buffers = 1GB\nmax_wal_size = 8GB\n"
)

// layout is that of each queue.
var layout = store.Layout{Shards: shards, Sink: message.NATS, MaxMessage: message.DefaultMaxSize}

// world is the servers and the clients of the producers.
type world struct {
	postgres, redis *service.Server
	pool            *pgxpool.Pool
	rdb             *redis.Client
	river           *river.Client[pgx.Tx]
	box             *outbox.Outbox

	postgresVersion, redisVersion string
	runs                          int
}

func newWorld(ctx context.Context, producers int) (*world, error) {
	w := &world{box: outbox.New(outbox.PostgreSQL)}
	if err := w.start(ctx, producers); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *world) start(ctx context.Context, producers int) (err error) {
	if w.postgres, err = service.StartPostgres(ctx, postgresConfig); err != nil {
		return err
	}
	if w.redis, err = service.StartRedis(ctx, "--appendonly", "yes"); err != nil {
		return err
	}
	options, err := redis.ParseURL(w.redis.URL())
	if err != nil {
		return err
	}
	w.rdb = redis.NewClient(options)
	config, err := pgxpool.ParseConfig(w.postgres.URL())
	if err != nil {
		return err
	}
	config.MaxConns = int32(producers) + 1 //nolint:gosec // a few
	if w.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	if err := w.tables(ctx); err != nil {
		return err
	}
	if w.river, err = river.NewClient(riverpgxv5.New(w.pool), &river.Config{}); err != nil {
		return err
	}
	return w.versions(ctx)
}

func (w *world) tables(ctx context.Context) error {
	for _, table := range []string{schema.DefaultTable, plainTable} {
		statements, err := schema.Up(schema.Postgres, table)
		if err != nil {
			return err
		}
		for _, statement := range statements {
			if _, err := w.pool.Exec(ctx, statement); err != nil {
				return err
			}
		}
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(w.pool), nil)
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

func (w *world) versions(ctx context.Context) error {
	if err := w.pool.QueryRow(ctx, "SELECT 'PostgreSQL ' || current_setting('server_version')").Scan(&w.postgresVersion); err != nil {
		return err
	}
	info, err := w.rdb.InfoMap(ctx, "server").Result()
	w.redisVersion = info["Server"]["redis_version"]
	return err
}

// clean makes all variants begin alike: empty tables, nothing to be written, and
// a new queue in an empty Redis.
func (w *world) clean(ctx context.Context) (*store.Queue, error) {
	for _, statement := range []string{"TRUNCATE " + schema.DefaultTable + ", " + plainTable + ", river_job", "CHECKPOINT"} {
		if _, err := w.pool.Exec(ctx, statement); err != nil {
			return nil, err
		}
	}
	if err := w.rdb.FlushAll(ctx).Err(); err != nil {
		return nil, err
	}
	w.runs++
	q := store.New(w.rdb, prefix, fmt.Sprintf("run-%d", w.runs))
	_, err := q.Layouts().Ensure(ctx, layout)
	return q, err
}

// arrived waits until count messages wait in the queue.
func arrived(ctx context.Context, q *store.Queue, count int) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for {
		var waiting int64
		for shard := range shards {
			stats, err := inspect.NewAdmin(q).Stats(ctx, shard)
			if err != nil {
				return err
			}
			waiting += stats.Waiting
		}
		if waiting >= int64(count) {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(errTimeout, fmt.Errorf("%d of %d: %w", waiting, count, ctx.Err()))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// spent is the processor time of producer, PostgreSQL, relay or settler and Redis up
// to now.
func (w *world) spent(bridge *process) (cpu [4]time.Duration) {
	cpu[0], cpu[1], cpu[3] = trial.CPU(os.Getpid()), trial.CPUBelow(w.postgres.Dir()), trial.CPUBelow(w.redis.Dir())
	if bridge != nil {
		cpu[2] = trial.CPU(bridge.command.Process.Pid)
	}
	return cpu
}

func (w *world) close() {
	if w.pool != nil {
		w.pool.Close()
	}
	if w.rdb != nil {
		_ = w.rdb.Close()
	}
	for _, server := range []*service.Server{w.postgres, w.redis} {
		if server != nil {
			server.Close()
		}
	}
}
