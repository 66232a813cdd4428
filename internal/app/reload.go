package app

import (
	"context"
	"log/slog"
	"os"
	"sync"

	"go.uber.org/fx"

	"github.com/delaybridge/delaybridge/internal/api/access"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/declarations"
	"github.com/delaybridge/delaybridge/internal/runner"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

// Reload has the daemon load its configuration again whenever something is received from
// asked, and take what may change, see [config.Config.Changes]. Where anything else differs, or the
// configuration is not right, all stays as it is.
//
// load reads again the configuration in force.
func Reload(asked <-chan os.Signal, load func(inForce *config.Config) (*config.Config, error)) fx.Option {
	return fx.Supply(reloads{asked, load})
}

type reloads struct {
	requests <-chan os.Signal
	load     func(inForce *config.Config) (*config.Config, error)
}

type reloadParams struct {
	fx.In

	Reloads  reloads `optional:"true"`
	Config   *config.Config
	Level    *telemetry.Level `optional:"true"`
	Metrics  *telemetry.Metrics
	Queues   *runner.Queues
	Register *declarations.Register
	Guard    *access.Guard
	Logger   *slog.Logger
}

// startReloads listens once all else has started, and until anything stops. What is asked
// before waits in the channel, what is asked later is ignored.
func startReloads(lc fx.Lifecycle, p reloadParams) {
	if p.Reloads.requests == nil {
		return
	}
	lc.Append(inBackground(runner.NewReloader(runner.ReloaderConfig{
		Requests: p.Reloads.requests, Load: p.Reloads.load, Declared: p.Register.Known, DeclaredChanged: p.Register.Changed(), Queues: p.Queues, Level: p.Level, Metrics: p.Metrics, Guard: p.Guard,
		Logger: p.Logger.With("instance", p.Config.Instance),
	}, p.Config).Run))
}

// inBackground runs something from the start until the stop, which waits for it.
func inBackground(run func(ctx context.Context)) fx.Hook {
	var cancel context.CancelFunc
	var running sync.WaitGroup
	return fx.StartStopHook(func(ctx context.Context) {
		ctx, cancel = context.WithCancel(context.WithoutCancel(ctx))
		running.Go(func() { run(ctx) })
	}, func() {
		cancel()
		running.Wait()
	})
}
