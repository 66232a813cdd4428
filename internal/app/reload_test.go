package app

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

// reloadConfig has a place for more of the queue, the log's level, and more of all.
const reloadConfig = `
redis: {url: "redis://127.0.0.1:1", dial_timeout: 100ms}
queues: {orders: {sink: events%s}, reminders: {sink: events}}
sinks: {events: {type: nats, url: "nats://127.0.0.1:1"}}
admin: {listen: ""}
log: {level: %s}
%s
`

// everyChange is of each key of a queue that may change.
const everyChange = `, rate: {messages: 5, topics: ["t=1"]}, late: {after: 1h, then: dead}, retry: {initial: 2s, max: 1h, attempts: 3},
  park_patience: 1h, dead: {keep: 1h, max: 10}, budget: {bytes: 1MiB, policy: warn}`

// newTestReloader has the queues of the configuration, of which none polls.
func newTestReloader(t *testing.T, cfg *config.Config) *reloader {
	t.Helper()
	r := &reloader{
		config: cfg, level: telemetry.NewLevel(cfg.Log.Level), queues: &queueSet{}, metrics: telemetry.New("test"),
		logger: slog.New(slog.DiscardHandler),
	}
	for _, name := range []string{"orders", "reminders"} {
		runner, queue := &queueRunner{queue: store.New(nil, cfg.Prefix, name)}, cfg.Queues[name]
		runner.settings.queue.Store(&queue)
		r.queues.runners = append(r.queues.runners, runner)
	}
	return r
}

// inForce is what counts for a queue now.
func inForce(r *reloader, name string) *config.Queue {
	for _, runner := range r.queues.runners {
		if runner.queue.Name() == name {
			return runner.settings.queue.Load()
		}
	}
	return nil
}

// TestChangeable changes every key that may change, and no other one is listed.
func TestChangeable(t *testing.T) {
	t.Parallel()
	r := newTestReloader(t, parse(t, reloadConfig, "", "info", ""))
	reminders := inForce(r, "reminders")
	next := parse(t, reloadConfig, everyChange, "debug", "")
	changed, err := r.take(next)
	require.NoError(t, err)
	patterns := make([]string, len(changed))
	for i, key := range changed {
		patterns[i] = strings.Replace(key, ".orders.", ".*.", 1)
	}
	assert.ElementsMatch(t, changeable, patterns)
	assert.Equal(t, next.Queues["orders"], *inForce(r, "orders"))
	assert.Same(t, reminders, inForce(r, "reminders"), "nothing of it has changed")
	assert.Equal(t, slog.LevelDebug, r.level.Level())
	changed, err = r.take(parse(t, reloadConfig, everyChange, "debug", ""))
	require.NoError(t, err)
	assert.Equal(t, []string{}, changed)
}

// TestReloadIsWhole: where anything cannot change, nothing does, and what cannot is named.
func TestReloadIsWhole(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ queue, log, more, want string }{
		"of a queue":     {", shards: 3, topics: [t], history: {count: 1}", "", "", "queues.orders.shards, queues.orders.history.count, queues.orders.topics"},
		"of the process": {"", "", "drain_timeout: 7s\nprefix: other", "prefix, drain_timeout"},
		"of the log":     {"", ", format: json", "", "log.format"},
		"another queue":  {"}, third: {sink: events", "", "", "queues.third"},
		"the name":       {"", "", "instance: other", "instance"},
		"an outbox":      {"", "", `outbox: {driver: postgres, dsn: "postgres://h/d"}`, "outbox.default"},
	} {
		before, next := parse(t, reloadConfig, "", "info", ""), parse(t, reloadConfig, everyChange+c.queue, "debug"+c.log, c.more)
		r := newTestReloader(t, before)
		orders := inForce(r, "orders")
		_, err := r.take(next)
		require.EqualError(t, err, "needs a restart: "+c.want, name)
		assert.Same(t, before, r.config, name)
		assert.Same(t, orders, inForce(r, "orders"), name)
		assert.Equal(t, slog.LevelInfo, r.level.Level(), name)
	}
}

// TestReloadWhileStarting: what is asked before all has started is done then, and what is
// asked while a configuration is loaded is done after it; an error changes nothing.
func TestReloadWhileStarting(t *testing.T) {
	t.Parallel()
	logs, asked, loads := &testenv.Log{}, make(chan os.Signal, 1), make(chan *config.Config)
	ask := func() {
		select {
		case asked <- syscall.SIGHUP:
		case <-time.After(time.Minute):
			require.Fail(t, "nobody listens")
		}
	}
	give := func(next *config.Config) {
		select {
		case loads <- next:
		case <-time.After(time.Minute):
			require.Fail(t, "nobody loads")
		}
	}
	says := func(text string, times int) {
		require.Eventually(t, func() bool { return strings.Count(logs.String(), text) == times }, time.Minute, 10*time.Millisecond, "%s", logs)
	}
	ask()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	before := parse(t, reloadConfig, "", "info", "")
	go func() {
		ended <- Run(ctx, before, slog.New(slog.NewTextHandler(logs, nil)), Reload(asked, func() (*config.Config, error) {
			if next := <-loads; next != nil {
				return next, nil
			}
			return nil, errors.New("the file is gone")
		}))
	}()
	const changed = "changed=[queues.orders.park_patience]"
	give(parse(t, reloadConfig, ", park_patience: 1h", "info", ""))
	says(changed, 1)
	ask()
	give(nil)
	says("the file is gone", 1)
	ask()
	ask() // The first is being done.
	give(parse(t, reloadConfig, ", park_patience: 1h", "info", ""))
	says("changed=[]", 1)
	give(parse(t, reloadConfig, ", park_patience: 2h", "info", ""))
	says(changed, 2)
	cancel()
	require.NoError(t, <-ended)
}
