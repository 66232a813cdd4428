package app

import (
	"context"
	"log/slog"
	"runtime/debug"
	"time"

	"go.uber.org/fx"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

// telemetryModule provides the metrics and the traces.
var telemetryModule = fx.Module("telemetry", fx.Provide(
	func() *telemetry.Metrics { return telemetry.New(Version()) },
	provideTraces,
))

// tracesTimeout bounds how long an exit waits for a collector.
const tracesTimeout = 3 * time.Second

// provideTraces makes the traces before the queues, and so ends them after those.
func provideTraces(lc fx.Lifecycle, cfg *config.Config, metrics *telemetry.Metrics, logger *slog.Logger) (*telemetry.Traces, error) {
	traces, err := telemetry.NewTraces(context.Background(), metrics, Version(), cfg.Instance, logger)
	lc.Append(fx.StopHook(func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, tracesTimeout)
		defer cancel()
		return traces.Stop(ctx)
	}))
	return traces, err
}

// Version is the program's version, as the Go toolchain recorded it.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
