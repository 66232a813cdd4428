package app

import (
	"context"
	"log/slog"
	"time"

	"go.uber.org/fx"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

// telemetryModule provides the metrics and the traces.
var telemetryModule = fx.Module("telemetry", fx.Provide(
	func(v version) *telemetry.Metrics { return telemetry.New(string(v)) },
	provideTraces,
))

// Version is the program's version, as metrics, traces and the API's document tell it.
func Version(text string) fx.Option { return fx.Replace(version(text)) }

type version string

// noVersion is that of a program that does not say.
const noVersion version = "(devel)"

// tracesTimeout bounds how long an exit waits for a collector.
const tracesTimeout = 3 * time.Second

// provideTraces makes the traces before the queues, and so ends them after those.
func provideTraces(lc fx.Lifecycle, cfg *config.Config, v version, metrics *telemetry.Metrics, logger *slog.Logger) (*telemetry.Traces, error) {
	traces, err := telemetry.NewTraces(context.Background(), metrics, string(v), cfg.Instance, logger)
	lc.Append(fx.StopHook(func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, tracesTimeout)
		defer cancel()
		return traces.Stop(ctx)
	}))
	return traces, err
}
