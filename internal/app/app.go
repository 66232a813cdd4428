// Package app is the daemon: it wires configuration, Redis, sinks, pollers and
// the admin listener together, and runs them until it is told to stop.
//
// It is wiring only: what is made of what, and in which order all starts and stops. What the
// parts do is in their own packages, of which none imports fx: runner has the life of queues
// and outboxes.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"go.uber.org/fx"
	"go.uber.org/fx/fxevent"

	"github.com/delaybridge/delaybridge/internal/config"
)

const (
	// startTimeout is ample: nothing that starts waits for a network.
	startTimeout = 15 * time.Second
	// stopMargin is for closing what is left after the drain.
	stopMargin = 10 * time.Second
)

// Options is the whole daemon as fx options.
func Options(cfg *config.Config, logger *slog.Logger) fx.Option {
	return fx.Options(
		fx.Supply(cfg, logger, noVersion),
		fx.Provide(func() *failure { return &failure{} }),
		redisModule,
		sinksModule,
		telemetryModule,
		queuesModule,
		adminModule,
		fx.Invoke(start, startReloads),
		fx.StartTimeout(startTimeout),
		fx.StopTimeout(cfg.DrainTimeout+stopMargin),
		fx.WithLogger(func() fxevent.Logger { return quietLogger{logger} }),
	)
}

// Run runs the daemon until ctx ends, and drains it. An error says why it did
// not start, had to stop, or could not drain in time. It is [health.ErrRefused] for a
// Redis on which messages would be lost, [membership.ErrNameTaken] for an instance name
// that another running bridge uses.
func Run(ctx context.Context, cfg *config.Config, logger *slog.Logger, more ...fx.Option) error {
	failed := &failure{}
	var page *statusPage
	app := fx.New(Options(cfg, logger), fx.Replace(failed), fx.Populate(&page), fx.Options(more...))
	background := context.WithoutCancel(ctx)
	startCtx, cancel := context.WithTimeout(background, app.StartTimeout())
	defer cancel()
	if err := app.Start(startCtx); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		lameDuck(page, app, cfg.Admin.LameDuck, logger)
	case <-app.Wait(): // A failure, or a signal that fx has seen first.
	}
	logger.Info("draining", "event", "drain", "instance", cfg.Instance, "timeout", cfg.DrainTimeout.String())
	stopCtx, cancelStop := context.WithTimeout(background, app.StopTimeout())
	defer cancelStop()
	err := app.Stop(stopCtx)
	if err != nil {
		err = fmt.Errorf("drain: %w", err)
	}
	if err = errors.Join(failed.get(), err); err == nil {
		logger.Info("stopped", "event", "stop", "instance", cfg.Instance)
	}
	return err
}

// lameDuck lets everything go on for a while, but that /readyz says no: a load balancer that
// asks it sends no call any more when the listener closes.
func lameDuck(page *statusPage, app *fx.App, lasts time.Duration, logger *slog.Logger) {
	if lasts <= 0 {
		return
	}
	logger.Info("no longer ready, the drain begins later", "event", "lame_duck", "after", lasts.String())
	page.draining.Store(true)
	timer := time.NewTimer(lasts)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-app.Wait(): // A failure.
	}
}

// failure is why the daemon ends by itself.
type failure struct{ err atomic.Pointer[error] }

func (f *failure) set(err error) { f.err.CompareAndSwap(nil, &err) }

func (f *failure) get() error {
	if err := f.err.Load(); err != nil {
		return *err
	}
	return nil
}

// quietLogger logs what went wrong in a stop hook; a failed start is returned,
// and logged once by the command.
type quietLogger struct{ *slog.Logger }

// LogEvent implements [fxevent.Logger].
func (l quietLogger) LogEvent(event fxevent.Event) {
	if e, ok := event.(*fxevent.OnStopExecuted); ok && e.Err != nil {
		l.Warn("stop hook failed", "event", "stop", "hook", e.FunctionName, "err", e.Err)
	}
}
