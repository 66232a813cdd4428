package membership

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/rediserr"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

const (
	// keepEvery is the time between two steps while something is under way.
	keepEvery = time.Second
	// glanceEvery is the time between two looks while nothing is under way.
	glanceEvery = 30 * time.Second
	// keeperPatience is how long an instance waits for the keeper to handle
	// what one of its own shards reports, before it does the keeper's work.
	keeperPatience = 3 * time.Second
)

// Keeper does the work of one instance for a whole queue. Two keepers do no harm.
type Keeper interface {
	// Step is one bounded step of what is under way.
	Step(ctx context.Context) error
	// Glance is Step without a sign that anything is under way: it checks few shards.
	Glance(ctx context.Context) error
}

// upkeep lets the keeper work while this instance is the one that does so.
type upkeep struct {
	config *Config

	layouts *layouts
	// mine is set if this instance is the queue's keeper.
	mine atomic.Bool

	// Only run uses these.
	kept     bool // mine at the last turn
	failed   bool
	glanceAt time.Time
	trouble  telemetry.Trouble
}

// run works until ctx ends. It is a goroutine of its own, so that a slow step
// holds up no heartbeat.
func (u *upkeep) run(ctx context.Context) {
	for u.config.Keeper != nil && wait.Sleep(ctx, keepEvery) {
		switch step, glance := u.due(time.Now()); {
		case step:
			u.work(ctx, u.config.Keeper.Step)
		case glance:
			u.work(ctx, u.config.Keeper.Glance)
		}
	}
}

// due says what to do now. A new keeper takes a whole step first.
func (u *upkeep) due(now time.Time) (step, glance bool) {
	mine := u.mine.Load()
	began := mine && !u.kept
	u.kept = mine
	if !mine {
		u.failed = false
		return u.layouts.disagreesFor(now) > keeperPatience, false
	}
	underWay := u.layouts.unsettled(now) || len(u.layouts.inUse.Load().Earlier) > 0
	return began || u.failed || underWay, !now.Before(u.glanceAt)
}

// work takes one step, and logs when steps begin to fail and when they work again.
func (u *upkeep) work(ctx context.Context, step func(context.Context) error) {
	callCtx, cancel := context.WithTimeout(ctx, store.MaxCall)
	defer cancel()
	err := step(callCtx)
	if errors.Is(err, store.ErrNoLayout) {
		u.layouts.repair(callCtx)
		err = nil
	}
	if ctx.Err() != nil {
		return
	}
	u.failed = err != nil
	u.glanceAt = time.Now().Add(glanceEvery*4/5 + rand.N(glanceEvery*2/5))
	if err != nil {
		if cause := rediserr.Cause(err); u.trouble.News(cause) {
			u.config.Logger.Warn("upkeep of the layout failed, trying again", "event", "layout", "reason", cause, "err", err)
		}
	} else if u.trouble.Over() {
		u.config.Logger.Info("upkeep of the layout works again", "event", "layout")
	}
}
