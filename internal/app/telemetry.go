package app

import (
	"runtime/debug"

	"go.uber.org/fx"

	"github.com/delaybridge/delaybridge/internal/telemetry"
)

// telemetryModule provides the metrics.
var telemetryModule = fx.Module("telemetry", fx.Provide(
	func() *telemetry.Metrics { return telemetry.New(Version()) },
	provideMonitor,
))

// Version is the program's version, as the Go toolchain recorded it.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
