package app

import (
	"context"
	"log/slog"
	"sync"

	"go.uber.org/fx"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/systemd"
)

// Supervised makes the daemon tell systemd when it is ready, lives and stops. Ready means that
// everything has started, as /livez does: a Redis that is away must not end the start.
func Supervised(by *systemd.Supervisor) fx.Option {
	return fx.Invoke(func(lc fx.Lifecycle, queues *queueSet, logger *slog.Logger) {
		s := &supervised{by: by, live: queues.live, logger: logger}
		// Of all hooks this one is appended last: it starts after all others, and stops before them.
		lc.Append(fx.StartStopHook(s.start, s.stop))
	})
}

// supervised owns the goroutine that feeds the watchdog.
type supervised struct {
	by     *systemd.Supervisor
	live   func() error
	logger *slog.Logger

	cancel context.CancelFunc
	done   sync.WaitGroup
}

func (s *supervised) start(ctx context.Context) {
	s.tell(ctx, systemd.Ready)
	ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if s.by.Watchdog() > 0 {
		s.done.Go(func() { s.feed(ctx) })
	}
}

// stop comes before the drain. From then on systemd looks at TimeoutStopSec alone.
func (s *supervised) stop(ctx context.Context) {
	s.cancel()
	s.done.Wait()
	s.tell(ctx, systemd.Stopping)
}

// feed says three times in the time that systemd waits that we live, as long as /livez says
// so. While a loop hangs it says nothing, so that systemd ends the process.
func (s *supervised) feed(ctx context.Context) {
	hangs := false
	for wait.Sleep(ctx, s.by.Watchdog()/3) {
		err := s.live()
		if err == nil {
			s.tell(ctx, systemd.Alive)
		} else if !hangs {
			s.logger.Error("a polling loop hangs, systemd will end the bridge", "event", "systemd", "err", err)
		}
		hangs = err != nil
	}
}

func (s *supervised) tell(ctx context.Context, state string) {
	if err := s.by.Send(ctx, state); err != nil {
		s.logger.Warn("systemd was not told", "event", "systemd", "err", err)
	}
}
