//go:build !production

package command

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/dev"
	"github.com/delaybridge/delaybridge/internal/outbox/sqldb"
)

// What `bridge dev` offers.
const (
	devQueue = "orders"
	devTopic = "order.timeout"
)

// devConfig is what differs from the defaults. A drain has nothing to wait for
// that is far away.
const devConfig = `
redis: {url: "redis://%s/0"}
queues:
  %s: {shards: 8, sink: events}
sinks:
  events: {type: nats, url: "nats://%s"}
inlets:
  orders: {sink: events, from: {stream: %s, subject: %s}, queue: %s, topic: %s, replies: %s, dead: %s}
admin: {listen: "%s"}
drain_timeout: 5s
`

// devOutbox is the section of a database. Its DSN has a file of its own, since a
// printed configuration has no secrets.
func devOutbox(dir, dsn string) (string, error) {
	driver := schema.MySQL
	if strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://") {
		driver = schema.Postgres
	}
	if err := sqldb.Check(driver, dsn); err != nil {
		return "", usagef("--outbox %v", err)
	}
	file := filepath.Join(dir, "outbox.dsn")
	if err := os.WriteFile(file, []byte(dsn), 0o600); err != nil {
		return "", fmt.Errorf("write dsn: %w", err)
	}
	return fmt.Sprintf("outbox: {driver: %s, dsn_file: %q}\n", driver, file), nil
}

// writeDevConfig writes a complete configuration and returns it. Environment
// variables do not count: they may be for a bridge in production.
func writeDevConfig(path string, servers *dev.Servers, dsn string) (*config.Config, error) {
	text := fmt.Sprintf(devConfig, servers.RedisAddr, devQueue, servers.NATSAddr,
		dev.InletStream, dev.InletSubject, devQueue, devTopic, dev.InletReplies, dev.InletDead, servers.Admin.Addr())
	if dsn != "" {
		outbox, err := devOutbox(filepath.Dir(path), dsn)
		if err != nil {
			return nil, err
		}
		text += outbox
	}
	cfg, err := config.Parse([]byte(text), nil)
	if err != nil {
		return nil, fmt.Errorf("make configuration: %w", err)
	}
	var file bytes.Buffer
	file.WriteString("# Written by `bridge dev` at each start, for the servers that it runs.\n")
	complete := *cfg
	complete.Instance = "" // It is this process' name.
	if err := complete.Print(&file); err != nil {
		return nil, err
	}
	if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
		return nil, fmt.Errorf("write configuration: %w", err)
	}
	return cfg, nil
}

const (
	readyTimeout = 30 * time.Second
	readyPause   = 20 * time.Millisecond
	// readyAnswer is short: the port takes connections before the bridge serves it.
	readyAnswer = time.Second
)

// awaitReady waits until the bridge says that it is ready, or the program's end.
func (e *environment) awaitReady() error {
	ctx, cancel := context.WithTimeout(e.ctx, readyTimeout)
	defer cancel()
	for {
		err := e.askReady(ctx)
		if err == nil {
			return nil
		}
		pause, stop := context.WithTimeout(ctx, readyPause)
		errEnd := e.wait(pause)
		stop()
		switch {
		case errEnd != nil:
			return errEnd
		case e.ctx.Err() != nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("bridge is not ready: %w", err)
		}
	}
}

func (e *environment) askReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyAnswer)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+e.servers.Admin.Addr().String()+"/readyz", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz says %s", response.Status)
	}
	return nil
}
