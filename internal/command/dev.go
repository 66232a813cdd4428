//go:build !production

package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/app"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/dev"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

// trialCommands are what only this build has.
type trialCommands struct {
	Dev devCommand `cmd:"" help:"Start everything embedded, to try it out."`
}

type devCommand struct {
	Data      string `xor:"data" placeholder:"DIR" help:"Keep the data in this folder. Default: a temporary one, removed at the end."`
	Memory    bool   `xor:"data" help:"Run Redis in this process, even if redis-server is installed, so that you can move its clock."`
	Demo      bool   `help:"Schedule a few messages, print each as it arrives, and end."`
	RedisPort int    `placeholder:"PORT" help:"Port of Redis. Default: 6379, or a free one."`
	NATSPort  int    `name:"nats-port" placeholder:"PORT" help:"Port of NATS. Default: 4222, or a free one."`
	Outbox    string `placeholder:"DSN" help:"Relay the outbox of this database: postgres://…, or user:password@tcp(host:3306)/name."`
	AdminPort int    `placeholder:"PORT" help:"Port of health and metrics. Default: 8080, or a free one."`
}

func (devCommand) Help() string {
	return `It needs nothing installed: it runs a NATS server with JetStream, a Redis (redis-server from
PATH, or one in this process that keeps its data in memory only) and the bridge, and prints what
listens where, and the commands to try next. It makes streams as messages need them. It ends on
SIGINT or SIGTERM with exit code 0. With the Redis in this process, POST /dev/clock/advance lets
30 days pass in a moment and publishes each message at its due time. Use it only to try things out: there is no login.

Example:

    bridge dev --demo
    bridge dev --data ./dev-data
    bridge dev --memory
    curl -X POST http://127.0.0.1:8080/dev/clock/advance -d '{"by": "30d"}'`
}

// environment is a running `bridge dev`.
type environment struct {
	*program
	servers *dev.Servers
	dir     string
	// file is the configuration's, for other commands.
	file   string
	config *config.Config
	// failed gets the bridge's error when it ends, nil included.
	failed <-chan error
}

func (c devCommand) Run(p *program) (err error) {
	dir, remove, err := c.folder()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	level := telemetry.NewLevel("warn")
	if c.Demo {
		level = telemetry.NewLevel("error")
	}
	logger := slog.New(devHandler{telemetry.NewLogger(p.stderr, level, "text").Handler()})
	arrivals := newPrinter(p.stdout)
	defer arrivals.close()
	options := dev.Options{
		Dir: dir, InMemory: c.Memory, RedisPort: c.RedisPort, NATSPort: c.NATSPort, AdminPort: c.AdminPort, Logger: logger,
	}
	if !c.Demo {
		options.OnPublish = arrivals.add
	}
	servers, err := dev.Start(p.ctx, options)
	if err != nil {
		return c.startError(p, err)
	}
	defer servers.Close()
	env := environment{program: p, servers: servers, dir: dir, file: filepath.Join(dir, "bridge.yaml")}
	if env.config, err = writeDevConfig(env.file, servers, c.Outbox); err != nil {
		return err
	}
	// The bridge drains while the servers still run.
	ctx, stop := context.WithCancel(p.ctx)
	defer stop()
	failed := make(chan error, 1)
	env.failed = failed
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		failed <- app.Run(ctx, env.config, logger, app.Version(p.version()), app.AdminListener(servers.Admin), app.LogLevel(level),
			app.DevHandler(newDevClock(servers.Clock, env.config)))
	}()
	err = env.use(c)
	stop()
	<-ended
	select {
	case errRun := <-failed:
		err = errors.Join(err, errRun)
	default: // use has seen it.
	}
	return err
}

// startError adds what helps. A signal during the start is an ordinary end.
func (c devCommand) startError(p *program, err error) error {
	if p.ctx.Err() != nil {
		err = nil
	}
	if errors.Is(err, dev.ErrInUse) {
		err = fmt.Errorf("%w; give another one with --data", err)
	}
	return err
}

// folder returns the data folder, and what is to be done with it at the end.
func (c devCommand) folder() (dir string, remove func() error, err error) {
	if c.Data == "" {
		dir, err = os.MkdirTemp("", "delaybridge-dev-")
		return dir, func() error { return os.RemoveAll(dir) }, err
	}
	if dir, err = filepath.Abs(c.Data); err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	return dir, func() error { return nil }, err
}

// use waits until the bridge is ready, and then for the end.
func (e *environment) use(c devCommand) error {
	if err := e.awaitReady(); err != nil || e.ctx.Err() != nil {
		return err
	}
	if c.Demo {
		if err := e.print(c); err != nil {
			return err
		}
		return e.demo()
	}
	if err := e.print(c); err != nil {
		return err
	}
	return e.wait(e.ctx)
}

// wait returns when ctx ends, or what fails before.
func (e *environment) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-e.servers.Failed():
		return err
	case err := <-e.failed:
		if err == nil && e.ctx.Err() == nil {
			err = errors.New("the bridge has ended")
		}
		return err
	}
}

// print says what listens where, and what to try.
func (e *environment) print(c devCommand) error {
	note := "removed at the end; --data DIR keeps it"
	if c.Data != "" {
		note = "kept"
	}
	tabs := tabwriter.NewWriter(e.stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(tabs, "Running, for trying things out only:\n\n") // Flush has the error.
	_, _ = fmt.Fprintf(tabs, "  Redis\t%s\t%s\n", e.config.Redis.URL, e.servers.RedisNote)
	_, _ = fmt.Fprintf(tabs, "  NATS\tnats://%s\tembedded, with JetStream\n", e.servers.NATSAddr)
	_, _ = fmt.Fprintf(tabs, "  Inlet\t%s\tpublish there, with the header delay-in: 10s; it answers on %s\n", dev.InletSubject, dev.InletReplies)
	_, _ = fmt.Fprintf(tabs, "  Console\thttp://%s/\talso /api/v1, /readyz, /livez and /metrics\n", e.servers.Admin.Addr())
	_, _ = fmt.Fprintf(tabs, "  Folder\t%s\t%s\n", e.dir, note)
	if err := tabs.Flush(); err != nil || c.Demo {
		return err
	}
	command, file := invocation(), quote(e.file)
	_, err := fmt.Fprintf(e.stdout, `
Try in another terminal:

  %[1]s schedule --config %[2]s --queue %[3]s --topic %[4]s --id order-42/timeout --in 10s 'order 42 is not paid'
  %[1]s get --config %[2]s --queue %[3]s --id order-42/timeout
%[6]s
%[5]sWhat reaches NATS is printed here. Ctrl-C ends it.

`, command, file, devQueue, devTopic, c.tryOutbox(command, file), e.tryClock())
	return err
}

// tryClock says how to let time pass, if that can be.
func (e *environment) tryClock() string {
	if e.servers.Clock == nil {
		return ""
	}
	return fmt.Sprintf("  curl -X POST http://%s/dev/clock/advance -d '{\"by\": \"30d\"}'\n", e.servers.Admin.Addr())
}

// tryOutbox says what to try with the database, if there is one.
func (c devCommand) tryOutbox(command, file string) string {
	if c.Outbox == "" {
		return ""
	}
	now := "floor(extract(epoch FROM clock_timestamp()) * 1000)"
	if !strings.HasPrefix(c.Outbox, "postgres") {
		now = "floor(unix_timestamp(now(3)) * 1000)"
	}
	return fmt.Sprintf(`  %[1]s outbox migrate up --config %[2]s
  INSERT INTO %[3]s (queue, message_id, topic, body, due_ms)
    VALUES ('%[4]s', 'order-43/timeout', '%[5]s', 'order 43 is not paid', %[6]s + 10000);
  %[1]s outbox list --config %[2]s

`, command, file, schema.DefaultTable, devQueue, devTopic, now)
}

// invocation is how this program was called, as far as that can be repeated.
func invocation() string {
	path, err := os.Executable()
	switch {
	case err != nil:
		return "bridge"
	case strings.Contains(path, string(filepath.Separator)+"go-build"): // go run removes it.
		return "go run ./cmd/bridge"
	default:
		return quote(os.Args[0])
	}
}
