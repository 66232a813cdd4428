package app

import (
	"context"
	"log/slog"
	"sync"

	"go.uber.org/fx"

	"github.com/delaybridge/delaybridge/internal/systemd"
	"github.com/delaybridge/delaybridge/internal/wait"
)

// Supervised makes the daemon tell systemd when it is ready, lives and stops.
func Supervised(by *systemd.Supervisor) fx.Option { return fx.Supply(by) }

type supervisedParams struct {
	fx.In

	Supervisor *systemd.Supervisor `optional:"true"`
	Queues     *queueSet
	Logger     *slog.Logger
}

// announce appends the hook that starts last and stops first. Ready means that everything
// has started, as /livez does: a Redis that is away must not end the start.
func announce(lc fx.Lifecycle, p supervisedParams) {
	if p.Supervisor == nil {
		return
	}
	tell := func(state string) func(context.Context) {
		return func(ctx context.Context) { tellSystemd(ctx, p.Supervisor, p.Logger, state) }
	}
	lc.Append(fx.StartStopHook(tell(systemd.Ready), tell(systemd.Stopping)))
}

func tellSystemd(ctx context.Context, supervisor *systemd.Supervisor, logger *slog.Logger, state string) {
	if err := supervisor.Send(ctx, state); err != nil {
		logger.Warn("systemd was not told", "event", "systemd", "err", err)
	}
}

// watchdog tells systemd that we live, as long as /livez says so. It owns a goroutine.
type watchdog struct {
	supervisor *systemd.Supervisor
	live       func() error
	logger     *slog.Logger

	cancel context.CancelFunc
	done   sync.WaitGroup
}

// feedWatchdog appends the hook that starts before the queues and stops after them, so
// that a drain is watched, too.
func feedWatchdog(lc fx.Lifecycle, p supervisedParams) {
	if p.Supervisor == nil || p.Supervisor.Watchdog() == 0 {
		return
	}
	w := &watchdog{supervisor: p.Supervisor, live: p.Queues.live, logger: p.Logger}
	lc.Append(fx.StartStopHook(w.start, w.stop))
}

func (w *watchdog) start(ctx context.Context) {
	ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	w.done.Go(func() { w.feed(ctx) })
}

func (w *watchdog) stop() {
	w.cancel()
	w.done.Wait()
}

// feed says it three times in the time that systemd waits. While a loop hangs it says
// nothing, so that systemd ends the process, with the stacks of all goroutines in the log.
func (w *watchdog) feed(ctx context.Context) {
	hangs := false
	for wait.Sleep(ctx, w.supervisor.Watchdog()/3) {
		err := w.live()
		if err == nil {
			tellSystemd(ctx, w.supervisor, w.logger, systemd.Alive)
		} else if !hangs {
			w.logger.Error("a polling loop hangs, systemd will end the bridge", "event", "systemd", "err", err)
		}
		hangs = err != nil
	}
}
