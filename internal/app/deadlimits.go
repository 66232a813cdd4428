package app

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/rediserr"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

const (
	// trimEvery is the time between two turns, trimSteps how many steps one has.
	trimEvery = 10 * time.Second
	trimSteps = 100
)

// deadLimits purges a queue's dead letters beyond its limits, on the instance that
// keeps the queue. It owns no goroutine.
type deadLimits struct {
	// limits are those in force, see reload.go.
	limits func() inspect.DeadLimits
	admin  *inspect.Admin
	// isKeeper reports whether this instance does what one instance does.
	isKeeper func() bool
	logger   *slog.Logger
	trouble  telemetry.Trouble
}

// run takes a turn now and then, until ctx ends.
func (d *deadLimits) run(ctx context.Context) {
	for wait.Sleep(ctx, trimEvery*3/4+rand.N(trimEvery/2)) { //nolint:gosec // spreads the turns of queues
		if limits := d.limits(); limits != (inspect.DeadLimits{}) && d.isKeeper() {
			d.turn(ctx, limits)
		}
	}
}

// turn purges what is beyond the limits, a bounded part, and says how much.
func (d *deadLimits) turn(ctx context.Context, limits inspect.DeadLimits) {
	sum := 0
	var err error
	for step, more := 0, true; more && err == nil && step < trimSteps && ctx.Err() == nil; step++ {
		var purged int
		purged, more, err = d.admin.TrimDead(ctx, limits)
		sum += purged
	}
	if sum > 0 {
		d.logger.Warn("dead letters purged beyond the queue's limits", "event", "purge", "messages", sum,
			"keep", limits.Keep.String(), "max", limits.Max)
	}
	switch {
	case ctx.Err() != nil:
	case err == nil:
		d.trouble.Over()
	case d.trouble.News(rediserr.Cause(err)):
		d.logger.Warn("dead letters beyond the queue's limits are not purged, trying again", "event", "purge", "reason", rediserr.Cause(err), "err", err)
	}
}
