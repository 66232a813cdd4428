package app

import (
	"log/slog"

	"go.uber.org/fx"

	"github.com/delaybridge/delaybridge/internal/runner"
	"github.com/delaybridge/delaybridge/internal/systemd"
)

// Supervised makes the daemon tell systemd when it is ready, lives and stops. Ready means that
// everything has started, as /livez does: a Redis that is away must not end the start.
func Supervised(by *systemd.Supervisor) fx.Option {
	return fx.Invoke(func(lc fx.Lifecycle, queues *runner.Queues, logger *slog.Logger) {
		w := systemd.NewWatchdog(by, queues.Live, logger)
		// Of all hooks this one is appended last: it starts after all others, and stops before them.
		lc.Append(fx.StartStopHook(w.Start, w.Stop))
	})
}
