package runner

import (
	"context"
	"log/slog"
	"os"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

// Reloader loads the configuration again when it is asked to, and puts it in force where it
// is right and differs in nothing that needs a restart. Else all stays as it is.
type Reloader struct {
	config  ReloaderConfig
	inForce *config.Config
}

// ReloaderConfig says what a [Reloader] changes. All is needed but Level.
type ReloaderConfig struct {
	Asked   <-chan os.Signal
	Load    func() (*config.Config, error)
	Queues  *Queues
	Level   *telemetry.Level // of the logger, where it can change
	Metrics *telemetry.Metrics
	Logger  *slog.Logger
}

// NewReloader returns one for which a configuration is in force.
func NewReloader(cfg ReloaderConfig, inForce *config.Config) *Reloader {
	return &Reloader{config: cfg, inForce: inForce}
}

// Run listens until ctx ends. What was asked before waits in the channel.
func (r *Reloader) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.config.Asked:
			r.reload()
		}
	}
}

// reload loads the configuration, puts it in force, and says so.
func (r *Reloader) reload() {
	changed, err := r.loadChanges()
	r.config.Metrics.Reloaded(err)
	if err != nil {
		r.config.Logger.Error("configuration not reloaded, the one before stays in force", "event", "reload", "err", err)
		return
	}
	r.config.Logger.Info("configuration reloaded", "event", "reload", "changed", changed)
}

func (r *Reloader) loadChanges() (changed []string, err error) {
	next, err := r.config.Load()
	if err != nil {
		return nil, err
	}
	if changed, err = config.Changes(r.inForce, next); err != nil {
		return nil, err
	}
	if r.config.Level != nil && next.Log.Level != r.inForce.Log.Level {
		r.config.Level.Configure(next.Log.Level)
	}
	r.config.Queues.Change(next, changed)
	r.inForce = next
	return changed, nil
}
