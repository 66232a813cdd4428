package runner

import (
	"context"
	"log/slog"
	"os"

	"github.com/delaybridge/delaybridge/internal/api/access"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

// Reloader loads the configuration again on request, and puts it in force if it is valid
// and differs in no key that needs a restart. Otherwise nothing changes.
type Reloader struct {
	config  ReloaderConfig
	inForce *config.Config
}

// ReloaderConfig says what a [Reloader] changes. All fields are required except Level.
type ReloaderConfig struct {
	Requests <-chan os.Signal
	Load     func() (*config.Config, error)
	Queues   *Queues
	Level    *telemetry.Level // of the logger, where it can change
	Guard    *access.Guard
	Metrics  *telemetry.Metrics
	Logger   *slog.Logger
}

// NewReloader returns a reloader for the configuration in force.
func NewReloader(cfg ReloaderConfig, inForce *config.Config) *Reloader {
	return &Reloader{config: cfg, inForce: inForce}
}

// Run listens until ctx ends. Earlier requests wait in the channel.
func (r *Reloader) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.config.Requests:
			r.reload()
		}
	}
}

// reload loads the configuration, puts it in force, and logs that.
func (r *Reloader) reload() {
	changed, err := r.loadChanges()
	r.config.Metrics.Reloaded(err)
	if err != nil {
		r.config.Logger.Error("configuration not reloaded, the old one stays in force", "event", "reload", "err", err)
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
	if err := r.config.Guard.Change(next.Admin.Auth.Settings()); err != nil {
		return nil, err
	}
	if r.config.Level != nil && next.Log.Level != r.inForce.Log.Level {
		r.config.Level.Configure(next.Log.Level)
	}
	r.config.Queues.Change(next, changed)
	r.inForce = next
	return changed, nil
}
