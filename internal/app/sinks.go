package app

import (
	"context"
	"fmt"
	"log/slog"

	"go.uber.org/fx"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/health"
	"github.com/delaybridge/delaybridge/internal/runner"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

// sinksModule provides the configured sinks by name. They are made before the
// pollers, and so closed after them. What is known of their brokers comes with them.
var sinksModule = fx.Module("sinks", fx.Provide(provideSinks, provideSinkHealth))

// sinkSet are the sinks by name; queues that name one sink share it.
type sinkSet map[string]sinks.Sink

func provideSinks(lc fx.Lifecycle, cfg *config.Config, logger *slog.Logger) (sinkSet, error) {
	set := sinkSet{}
	for name, sinkConfig := range cfg.Sinks {
		sink, err := sinkConfig.Settings("delaybridge-" + name).Open(logger.With("sink", name))
		if err != nil {
			return nil, fmt.Errorf("sinks.%s: %w", name, err)
		}
		set[name] = sink
		lc.Append(fx.StopHook(func(ctx context.Context) error {
			if err := sink.Close(ctx); err != nil {
				return fmt.Errorf("close sink %s: %w", name, err)
			}
			return nil
		}))
	}
	return set, nil
}

func provideSinkHealth(lc fx.Lifecycle, set sinkSet, queues *runner.Queues, metrics *telemetry.Metrics) *health.Sinks {
	states := health.NewSinks(set, queues.IsFailing, metrics)
	lc.Append(fx.StartStopHook(states.Start, states.Stop))
	return states
}
