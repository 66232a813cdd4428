// Command services runs a command, usually the tests, beside one shared server
// of each kind: Redis, NATS, RabbitMQ, Kafka, PostgreSQL and MariaDB, as in
// "services go test ./...". It tells the command their addresses in
// DELAYBRIDGE_TEST_*_URL, stops them when it ends, and exits with its code. A
// server whose variable is set already is not started. "services -only redis,nats"
// starts these alone, for work on what needs no other. "services -fetch" only gets
// what the servers need into .cache.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
)

// How long an interrupted command has before it is killed.
const interruptGrace = 30 * time.Second

type starter struct {
	name  string
	start func(context.Context) (*service.Server, error)
}

// env is where tests find the server.
func (s starter) env() string { return "DELAYBRIDGE_TEST_" + strings.ToUpper(s.name) + "_URL" }

func starters() []starter {
	return []starter{
		{"redis", func(ctx context.Context) (*service.Server, error) { return service.StartRedis(ctx) }},
		{"nats", func(ctx context.Context) (*service.Server, error) { return service.StartNATS(ctx, "") }},
		{"rabbitmq", func(ctx context.Context) (*service.Server, error) { return service.StartRabbitMQ(ctx, "") }},
		{"kafka", func(ctx context.Context) (*service.Server, error) {
			// Nobody kills it, and where the machine stands still, its controller shall not take it for dead.
			return service.StartKafka(ctx, "broker.session.timeout.ms=120000")
		}},
		{"postgres", func(ctx context.Context) (*service.Server, error) {
			return service.StartPostgres(ctx, service.PostgresUnsafe)
		}},
		{"mariadb", func(ctx context.Context) (*service.Server, error) {
			return service.StartMariaDB(ctx, service.MariaDBUnsafe)
		}},
	}
}

func main() {
	fetch := flag.Bool("fetch", false, "only fetch and build what the servers need")
	only := flag.String("only", "", "the servers to start, a comma list; else all")
	flag.Usage = func() {
		_, _ = fmt.Fprintln(flag.CommandLine.Output(), "usage: services -fetch | services [-only NAMES] COMMAND [ARGUMENT...]")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	if *fetch {
		os.Exit(exitCode(fetchAll(ctx)))
	}
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	wanted, err := choose(*only)
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "services:", err)
		os.Exit(2) //nolint:gocritic // nothing was begun
	}
	os.Exit(exitCode(run(ctx, wanted, flag.Args())))
}

// choose are the servers of a comma list, all where it is empty.
func choose(only string) ([]starter, error) {
	all := starters()
	if only == "" {
		return all, nil
	}
	var list []starter
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(all, func(s starter) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("unknown server %q in -only", name)
		}
		list = append(list, all[i])
	}
	return list, nil
}

func fetchAll(ctx context.Context) error {
	_, natsErr := service.NATSBinary(ctx)
	_, pubsubErr := service.PubSubBinary(ctx)
	return errors.Join(natsErr, pubsubErr, service.FetchKafka(ctx), service.FetchSQS(ctx))
}

func run(ctx context.Context, wanted []starter, command []string) error {
	env, closeAll, err := startAll(ctx, wanted)
	defer closeAll()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = interruptGrace
	return cmd.Run()
}

// startAll starts the servers at the same time. closeAll is never nil and
// ends those that came up.
func startAll(ctx context.Context, wanted []starter) (env []string, closeAll func(), err error) {
	var (
		wg      sync.WaitGroup
		mu      sync.Mutex
		servers []*service.Server
	)
	for _, s := range wanted {
		if url := os.Getenv(s.env()); url != "" {
			_, _ = fmt.Fprintf(os.Stderr, "services: %s=%s is given\n", s.env(), url)
			continue
		}
		wg.Go(func() {
			begin := time.Now()
			server, startErr := s.start(ctx)
			mu.Lock()
			defer mu.Unlock()
			if errors.Is(startErr, service.ErrMissing) && os.Getenv("CI") != "true" {
				_, _ = fmt.Fprintf(os.Stderr, "\n!!! services: NO %s, its tests are skipped: %v\n\n", s.env(), startErr)
				return
			}
			if startErr != nil {
				err = errors.Join(err, startErr)
				return
			}
			servers = append(servers, server)
			env = append(env, s.env()+"="+server.URL())
			_, _ = fmt.Fprintf(os.Stderr, "services: %s=%s after %v\n", s.env(), server.URL(), time.Since(begin).Round(time.Millisecond))
		})
	}
	wg.Wait()
	return env, func() {
		for _, server := range servers {
			wg.Go(server.Close)
		}
		wg.Wait()
	}, err
}

// exitCode passes the command's own code on.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 {
		return exit.ExitCode()
	}
	_, _ = fmt.Fprintln(os.Stderr, "services:", err)
	return 1
}
