// Package recurring plans the firings of a queue's recurring schedules. One instance of the queue does it, the
// one that polls its first shard; if two do for a moment, or none for half a minute, no firing
// is doubled, lost or late. Package recurring of the store does one step, and says why.
package recurring

import (
	"context"
	"log/slog"
	"time"
	_ "time/tzdata" // A container may have no time zones.

	"github.com/delaybridge/delaybridge/internal/engine/store/recurring"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

const (
	// lookEvery is the interval between looks, since a hint may be lost. Firings are scheduled further ahead.
	lookEvery = 5 * time.Second
	// patience bounds one look: all steps for all schedules.
	patience = 20 * time.Second
	// saidEvery is the interval at which a lasting failure is logged again.
	saidEvery = time.Minute
)

// Observer is told how many schedules this instance plans for, and what it has done.
type Observer interface {
	RecurringSchedules(queue string, schedules int)
	RecurringFirings(queue string, scheduled, skipped int64)
}

// Planner plans the firings of one queue.
type Planner struct {
	queue    string
	store    *recurring.Schedules
	isOurs   func() bool
	observer Observer
	logger   *slog.Logger
	wake     chan struct{} // of 1

	// all are the schedules as of the mark, which is of the last change of any.
	all  []recurring.Kept
	mark string
	said time.Time // when a failure was last logged
}

// New returns a planner, which does nothing until Run. isOurs says whether this instance is to plan now.
func New(queue string, store *recurring.Schedules, isOurs func() bool, observer Observer, logger *slog.Logger) *Planner {
	return &Planner{queue: queue, store: store, isOurs: isOurs, observer: observer, logger: logger, wake: make(chan struct{}, 1)}
}

// Wake makes it look at once. It does not block.
func (p *Planner) Wake() { wait.Wake(p.wake) }

// Run works until ctx ends.
func (p *Planner) Run(ctx context.Context) {
	for {
		if p.isOurs() {
			p.look(ctx)
		} else {
			p.observer.RecurringSchedules(p.queue, 0)
		}
		if !wait.SleepOrWake(ctx, lookEvery, p.wake) {
			return
		}
	}
}

// look makes a step for each schedule. What was read stays good until anybody changes a schedule, so a look at a queue
// that has none, or none whose time has come, is one command. Other parts report that Redis is unavailable.
func (p *Planner) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	mark, err := p.store.Mark(ctx)
	if err != nil {
		return
	}
	if mark != p.mark {
		if p.all, p.mark, err = p.store.List(ctx); err != nil {
			p.mark = "" // It is read again.
			return
		}
	}
	p.observer.RecurringSchedules(p.queue, len(p.all))
	for _, kept := range p.all {
		done, err := p.store.Step(ctx, kept)
		p.observer.RecurringFirings(p.queue, done.Scheduled, done.Skipped)
		if done.Skipped > 0 {
			p.logger.Warn("firings were missed, and are left out", "event", "recurring_missed", "recurring", kept.Name, "firings", done.Skipped)
		}
		if err != nil && ctx.Err() == nil && time.Since(p.said) > saidEvery {
			p.said = time.Now()
			p.logger.Warn("recurring schedule has to wait", "event", "recurring_wait", "recurring", kept.Name, "err", err)
		}
	}
}
