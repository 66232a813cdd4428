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

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
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
		ended <- Run(ctx, before, slog.New(slog.NewTextHandler(logs, nil)), Reload(asked, func(*config.Config) (*config.Config, error) {
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
