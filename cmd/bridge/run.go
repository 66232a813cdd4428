package main

import (
	"os"

	"github.com/delaybridge/delaybridge/internal/app"
	"github.com/delaybridge/delaybridge/internal/systemd"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

type runCommand struct{ fileFlag }

func (runCommand) Help() string {
	return `It polls the queues and publishes what is due until SIGTERM or SIGINT, then drains and exits
with 0. A second signal ends it at once. Its log goes to standard error. A systemd unit of
Type=notify is told when it is ready and stops, and its watchdog that no polling loop hangs.

Example:

    bridge run --config bridge.yaml`
}

func (c runCommand) Run(p *program) error {
	cfg, err := loadConfig(p, c.Config)
	if err != nil {
		return err
	}
	supervisor, err := systemd.New(p.environ, os.Getpid())
	if err != nil {
		return err
	}
	level := telemetry.NewLevel(cfg.Log.Level)
	return app.Run(p.ctx, cfg, telemetry.NewLogger(os.Stderr, level, cfg.Log.Format), app.LogLevel(level), app.Supervised(supervisor))
}
