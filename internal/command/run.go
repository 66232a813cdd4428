package command

import (
	"os"

	"github.com/delaybridge/delaybridge/internal/app"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/systemd"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

type runCommand struct{ fileFlag }

func (runCommand) Help() string {
	return `It polls the queues and publishes due messages until SIGTERM or SIGINT, then drains and exits
with 0. A second signal ends it at once. Its log goes to standard error. With Type=notify it tells
systemd when it is ready and when it stops, and the watchdog that no polling loop hangs.

On SIGHUP it reads the configuration again: queues are added, removed and changed, and log.level changes, while the other
queues run. If anything else differs, or is wrong, nothing changes, and the log says why. Files of queue_files are read again
by themselves; a wrong one counts as it was before.

Example:

    bridge run --config bridge.yaml`
}

func (c runCommand) Run(p *program) error {
	hangups := takeHangups()                     // Before all else: one that comes early ends nothing, either.
	cfg, err := config.Load(c.Config, p.environ) // Wrong queue files are in the log.
	if err != nil {
		return configFailure(c.Config, err)
	}
	supervisor, err := systemd.New(p.environ, os.Getpid())
	if err != nil {
		return err
	}
	level := telemetry.NewLevel(cfg.Log.Level)
	again := func(inForce *config.Config) (*config.Config, error) {
		next, err := inForce.Again()
		return next, configFailure(c.Config, err)
	}
	return app.Run(p.ctx, cfg, telemetry.NewLogger(os.Stderr, level, cfg.Log.Format),
		app.Version(p.version()), app.LogLevel(level), app.Reload(hangups, again), app.Supervised(supervisor))
}
