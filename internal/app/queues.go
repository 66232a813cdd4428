package app

import (
	"log/slog"

	"github.com/redis/go-redis/v9"
	"go.uber.org/fx"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/declarations"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/seal"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/declared"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/health"
	"github.com/delaybridge/delaybridge/internal/operate"
	"github.com/delaybridge/delaybridge/internal/runner"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

// queuesModule provides the queues, the outboxes and the inlets. They depend on Redis and the sinks, and
// are started last, so that fx, which stops in reverse order, drains the pollers
// first, then closes the sinks, then Redis.
var queuesModule = fx.Module("queues", fx.Provide(provideQueues, provideOutboxes, provideInlets, provideRegister, provideDeclarations))

type queueParams struct {
	fx.In

	Config     *config.Config
	Redis      redis.UniversalClient
	Sinks      sinkSet
	Keys       *seal.Keyring
	Metrics    *telemetry.Metrics
	Traces     *telemetry.Traces
	Health     *health.Redis
	Logger     *slog.Logger
	Shutdowner fx.Shutdowner
	Failure    *failure
}

func provideQueues(p queueParams) (*runner.Queues, error) {
	return runner.NewQueues(runner.Config{
		Config: p.Config, Instance: message.NewInstance(p.Config.Instance), Redis: p.Redis, Sinks: p.Sinks, Keys: p.Keys,
		Metrics: p.Metrics, Traces: p.Traces, Health: p.Health, Logger: p.Logger,
		Fatal: func(err error) {
			p.Failure.set(err)
			_ = p.Shutdowner.Shutdown(fx.ExitCode(1)) // Fails only if the program ends already.
		},
	})
}

func provideOutboxes(lc fx.Lifecycle, cfg *config.Config, queues *runner.Queues, sinks sinkSet, metrics *telemetry.Metrics, logger *slog.Logger,
) (*runner.Outboxes, error) {
	outboxes, err := runner.NewOutboxes(runner.OutboxesConfig{Config: cfg, Queues: queues, Sinks: sinks, Metrics: metrics, Logger: logger})
	if err != nil {
		return nil, err
	}
	lc.Append(fx.StopHook(outboxes.Close))
	return outboxes, nil
}

func provideInlets(cfg *config.Config, queues *runner.Queues, sinks sinkSet, metrics *telemetry.Metrics, logger *slog.Logger) (*runner.Inlets, error) {
	return runner.NewInlets(runner.InletsConfig{Config: cfg, Queues: queues, Sinks: sinks, Metrics: metrics, Logger: logger})
}

// provideRegister provides what is known of the queues that are declared by the API. It looks from the start, so the first queues are
// there soon after those of the files.
func provideRegister(lc fx.Lifecycle, cfg *config.Config, rdb redis.UniversalClient, queues *runner.Queues, metrics *telemetry.Metrics, logger *slog.Logger,
) *declarations.Register {
	known := declarations.New(declarations.Config{
		Store: declared.New(rdb, cfg.Prefix, cfg.Redis.Timeout), IsUsed: func() bool { return queues.Config().IsDeclaredByAPI() },
		IsReadOnly: cfg.Admin.ReadOnly, Lost: metrics.DeclarationsLost, Logger: logger.With("instance", cfg.Instance),
	})
	lc.Append(inBackground(known.Run))
	return known
}

func provideDeclarations(cfg *config.Config, rdb redis.UniversalClient, queues *runner.Queues, known *declarations.Register) *operate.Declarations {
	return &operate.Declarations{Register: known, Config: queues.Config, Admin: func(queue string) *inspect.Admin {
		return inspect.NewAdmin(store.NewWithTimeout(rdb, cfg.Prefix, queue, cfg.Redis.Timeout))
	}}
}
