package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/outbox/relay"
	"github.com/delaybridge/delaybridge/internal/outbox/settler"
	"github.com/delaybridge/delaybridge/internal/outbox/sqldb"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// Where the relay's process finds the servers.
const (
	postgresEnv = "BENCH_POSTGRES"
	redisEnv    = "BENCH_REDIS"
)

// What a process of our own is.
const (
	isRelay   = "relay"
	isSettler = "settler"
)

// carry runs the bridge's relay or settler for a queue until ctx ends, and says on
// its output when it begins.
func carry(ctx context.Context, role, queue string) error {
	options, err := redis.ParseURL(os.Getenv(redisEnv))
	if err != nil {
		return err
	}
	rdb := redis.NewClient(options)
	defer func() { _ = rdb.Close() }()
	d, err := table.Open(table.Config{Dialect: schema.Postgres, Source: sqldb.Plain(os.Getenv(postgresEnv)), Discard: true})
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	q := store.New(rdb, prefix, queue)
	if _, err := q.Layouts().Ensure(ctx, layout); err != nil {
		return err
	}
	run, ready, err := begin(role, d, q)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	select {
	case <-ready:
		fmt.Println("ready")
		return <-done
	case err := <-done:
		return err
	}
}

// begin makes what is to run, and says when it does.
func begin(role string, d *table.Database, q *store.Queue) (run func(context.Context) error, ready <-chan struct{}, err error) {
	if role == isSettler {
		s, err := settler.New(settler.Config{
			Databases: []settler.Database{{Database: d}},
			Queues:    []settler.Queue{{Name: q.Name(), Store: q.Rows(), Held: held}},
		})
		at := make(chan struct{})
		close(at)
		if err != nil {
			return nil, nil, err
		}
		for _, shard := range held() {
			s.Notify(q.Name(), shard)
		}
		return s.Run, at, nil
	}
	r, err := relay.New(relay.Config{
		Database: d, Clock: q.Clock,
		Queues: []outbox.Queue{{Name: q.Name(), Store: outbox.NewStore(q.Rows()), Sink: message.NATS, MaxMessage: message.DefaultMaxSize}},
	})
	if err != nil {
		return nil, nil, err
	}
	return r.Run, r.Ready(), nil
}

// held are all shards.
func held() []int {
	list := make([]int, shards)
	for i := range list {
		list[i] = i
	}
	return list
}

// process is a relay or a settler in a process of its own.
type process struct {
	command *exec.Cmd
	began   time.Time
}

// launch returns when the process has begun to work.
func (w *world) launch(ctx context.Context, role string, q *store.Queue) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := exec.CommandContext(context.WithoutCancel(ctx), self, "-role", role, "-queue", q.Name())
	command.Env = append(os.Environ(), postgresEnv+"="+w.postgres.URL(), redisEnv+"="+w.redis.URL())
	command.Stderr = os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	p := &process{command: command}
	if _, err := bufio.NewReader(output).ReadString('\n'); err != nil {
		p.close()
		return nil, fmt.Errorf("start the %s: %w", role, err)
	}
	p.began = time.Now()
	return p, nil
}

func (p *process) close() {
	_ = p.command.Process.Signal(syscall.SIGTERM)
	_ = p.command.Wait() // Its error is on the terminal.
}
