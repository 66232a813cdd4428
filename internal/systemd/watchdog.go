package systemd

import (
	"context"
	"log/slog"
	"sync"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

// Watchdog tells systemd when the process is ready, lives and stops. It owns the goroutine
// that feeds systemd's watchdog.
type Watchdog struct {
	by     *Supervisor
	live   func() error
	logger *slog.Logger

	cancel context.CancelFunc
	done   sync.WaitGroup
}

// NewWatchdog returns one for a process that is not ready yet. An error of live says that a
// loop of it hangs.
func NewWatchdog(by *Supervisor, live func() error, logger *slog.Logger) *Watchdog {
	return &Watchdog{by: by, live: live, logger: logger}
}

// Start says that the process is ready, and from then on that it lives.
func (w *Watchdog) Start(ctx context.Context) {
	w.tell(ctx, Ready)
	ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if w.by.Watchdog() > 0 {
		w.done.Go(func() { w.feed(ctx) })
	}
}

// Stop says that the process stops. From then on systemd looks at TimeoutStopSec alone.
func (w *Watchdog) Stop(ctx context.Context) {
	w.cancel()
	w.done.Wait()
	w.tell(ctx, Stopping)
}

// feed says three times in the time that systemd waits that we live, as long as /livez says
// so. While a loop hangs it says nothing, so that systemd ends the process.
func (w *Watchdog) feed(ctx context.Context) {
	hangs := false
	for wait.Sleep(ctx, w.by.Watchdog()/3) {
		err := w.live()
		if err == nil {
			w.tell(ctx, Alive)
		} else if !hangs {
			w.logger.Error("a polling loop hangs, systemd will end the bridge", "event", "systemd", "err", err)
		}
		hangs = err != nil
	}
}

func (w *Watchdog) tell(ctx context.Context, state string) {
	if err := w.by.Send(ctx, state); err != nil {
		w.logger.Warn("systemd was not told", "event", "systemd", "err", err)
	}
}
