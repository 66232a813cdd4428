package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/outbox/relay"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
	"github.com/delaybridge/delaybridge/internal/store"
)

// Where the relay's process finds the servers.
const (
	postgresEnv = "BENCH_POSTGRES"
	redisEnv    = "BENCH_REDIS"
)

// beRelay runs the bridge's relay for a queue until ctx ends, and says on its
// output when it begins.
func beRelay(ctx context.Context, queue, profile string) error {
	options, err := redis.ParseURL(os.Getenv(redisEnv))
	if err != nil {
		return err
	}
	rdb := redis.NewClient(options)
	defer func() { _ = rdb.Close() }()
	d, err := table.Open(table.Config{Dialect: schema.Postgres, DSN: os.Getenv(postgresEnv)})
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	q := store.New(rdb, prefix, queue)
	r, err := relay.New(relay.Config{
		Database: d, Clock: q.Clock,
		Queues: []outbox.Queue{{Name: queue, Store: outbox.NewStore(q.Rows()), Sink: message.NATS, MaxMessage: message.DefaultMaxSize}},
	})
	if err != nil {
		return err
	}
	stop, err := profileTo(profile, "relay")
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	select {
	case <-r.Ready():
		fmt.Println("ready")
		err = <-done
	case err = <-done:
	}
	return errors.Join(err, stop())
}

// profileTo writes a CPU profile into a folder, where one is given.
func profileTo(folder, name string) (stop func() error, err error) {
	if folder == "" {
		return func() error { return nil }, nil
	}
	file, err := os.Create(filepath.Join(folder, name+".pprof"))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return file.Close()
	}, nil
}

func (s settings) profiled(work func() error) error {
	stop, err := profileTo(s.profile, "producer")
	if err != nil {
		return err
	}
	return errors.Join(work(), stop())
}

// relayProcess is a relay in a process of its own.
type relayProcess struct {
	command *exec.Cmd
	began   time.Time
}

// startRelay returns when the relay has begun to look at the table.
func (w *world) startRelay(ctx context.Context, q *store.Queue, profile string) (*relayProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := exec.CommandContext(context.WithoutCancel(ctx), self, "-relay", q.Name(), "-profile", profile)
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
	p := &relayProcess{command: command}
	if _, err := bufio.NewReader(output).ReadString('\n'); err != nil {
		p.close()
		return nil, fmt.Errorf("start the relay: %w", err)
	}
	p.began = time.Now()
	return p, nil
}

func (p *relayProcess) close() {
	_ = p.command.Process.Signal(syscall.SIGTERM)
	_ = p.command.Wait() // Its error is on the terminal.
}
