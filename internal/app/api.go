package app

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"go.uber.org/fx"

	"github.com/delaybridge/delaybridge/internal/api"
	"github.com/delaybridge/delaybridge/internal/api/access"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/seal"
	"github.com/delaybridge/delaybridge/internal/health"
	"github.com/delaybridge/delaybridge/internal/operate"
	"github.com/delaybridge/delaybridge/internal/runner"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

// LogLevel is the level of the logger that the daemon is given, which the API changes.
func LogLevel(level *telemetry.Level) fx.Option { return fx.Supply(level) }

type apiParams struct {
	fx.In

	Config       *config.Config
	Guard        *access.Guard
	Version      version
	Sinks        *health.Sinks
	Keys         *seal.Keyring
	Queues       *runner.Queues
	Declarations *operate.Declarations
	Inlets       *runner.Inlets
	Metrics      *telemetry.Metrics
	Level        *telemetry.Level `optional:"true"`
	Logger       *slog.Logger
}

// provideGuard provides what decides who may call; it fetches the keys of issuers in the background, so none of
// them is needed for a start.
func provideGuard(lc fx.Lifecycle, cfg *config.Config, metrics *telemetry.Metrics, logger *slog.Logger) (*access.Guard, error) {
	var tokens *access.File
	if file := cfg.Admin.Auth.TokensFile; file != "" {
		var err error
		if tokens, err = access.Open(file, logger); err != nil {
			return nil, fmt.Errorf("admin.auth.tokens_file: %w", err)
		}
	}
	guard, err := access.NewGuard(access.Options{
		Tokens: tokens, Settings: cfg.Admin.Auth.Settings(), ReadOnly: cfg.Admin.ReadOnly, Observer: metrics, Logger: logger,
	})
	if err != nil {
		return nil, err
	}
	lc.Append(inBackground(guard.Run))
	return guard, nil
}

func provideAPI(lc fx.Lifecycle, p apiParams) (*api.API, error) {
	cfg, logger := p.Config, p.Logger
	var open func(*message.Message) error
	if cfg.Encryption.ShowBodies {
		open = func(m *message.Message) error { return seal.Open(p.Keys, m) }
	}
	if p.Level == nil { // The logger has one of its own.
		p.Level = telemetry.NewLevel(cfg.Log.Level)
	}
	a, err := api.New(api.Config{
		Version: string(p.Version), Instance: cfg.Instance, Queues: p.Queues.Used, Declarations: p.Declarations, Guard: p.Guard, Open: open, Level: p.Level, Logger: logger,
		Sinks: func() (states []api.Sink) {
			for _, name := range slices.Sorted(maps.Keys(cfg.Sinks)) {
				s := p.Sinks.State(name)
				states = append(states, api.Sink{Name: name, Type: cfg.Sinks[name].Type, Up: s.IsUp(), Detail: s.Detail(), Since: s.Since()})
			}
			return states
		},
		Inlets: func() operate.Inlets {
			return p.Inlets.Views(func(sink string) (isAway bool, why string, since time.Time) {
				s := p.Sinks.State(sink)
				return !s.IsUp() && !s.Since().IsZero(), s.Detail(), s.Since()
			})
		},
		Refused: p.Metrics.CallRefused, Timed: p.Metrics.Timed, Rooms: p.Queues.Rooms, Unconfirmed: p.Queues.Unconfirmed,
		Lateness: func(queue string) operate.Histogram {
			bounds, counts := p.Metrics.Lateness(queue)
			return operate.Histogram{Bounds: bounds, Counts: counts}
		},
		Rules: func(queue string) operate.RulesView {
			if queue := p.Queues.InForce(queue); queue != nil {
				return operate.ViewRules(queue)
			}
			return operate.RulesView{}
		},
	})
	if err != nil {
		return nil, err
	}
	lc.Append(inBackground(a.Run))
	return a, nil
}
