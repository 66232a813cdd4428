package upkeep

import (
	"context"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

const (
	// trimEvery is the time between two turns, trimSteps how many steps one has.
	trimEvery = 10 * time.Second
	trimSteps = 100
)

// DeadLimits purges a queue's dead letters beyond its limits, on the queue's
// keeper.
type DeadLimits struct{ queue *Queue }

// NewDeadLimits returns them; it does no I/O.
func NewDeadLimits(queue *Queue) *DeadLimits { return &DeadLimits{queue: queue} }

// Run takes a turn now and then, until ctx ends.
func (d *DeadLimits) Run(ctx context.Context) {
	turns := rounds{every: trimEvery, event: "purge", fails: "dead letters beyond the queue's limits are not purged", logger: d.queue.Logger}
	turns.run(ctx, d.Turn)
}

// Turn purges a bounded part of the dead letters beyond the limits, and logs how many.
func (d *DeadLimits) Turn(ctx context.Context) (err error) {
	limits := inspect.DeadLimits(d.queue.Config().Dead)
	if limits == (inspect.DeadLimits{}) || !d.queue.IsKeeper() {
		return nil
	}
	sum := 0
	for step, more := 0, true; more && err == nil && step < trimSteps; step++ {
		var purged int
		purged, more, err = d.queue.admin().TrimDead(ctx, limits)
		sum += purged
	}
	if sum > 0 {
		d.queue.Logger.Warn("dead letters purged beyond the queue's limits", "event", "purge", "messages", sum,
			"keep", limits.Keep.String(), "max", limits.Max)
	}
	return err
}
