package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/rediserr"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

// budgetEvery is how often the room that is left is shared anew.
const budgetEvery = time.Second

// budget keeps a queue within its bytes, on the instance that keeps the queue. The others
// measure it, too, so that each can tell when it is full. It owns no goroutine.
type budget struct {
	name string
	// limits are those in force, see reload.go.
	limits func() config.Budget
	admin  *inspect.Admin
	// isKeeper reports whether this instance does what one instance does.
	isKeeper func() bool
	metrics  *telemetry.Metrics
	logger   *slog.Logger
	trouble  telemetry.Trouble
	growth   growth
	isOver   bool
}

// run takes a turn a second, until ctx ends. Where there is no budget any more, the
// keeper takes the earlier one back.
func (b *budget) run(ctx context.Context) {
	for isOff := false; wait.Sleep(ctx, budgetEvery); {
		limits, isKeeper := b.limits(), b.isKeeper()
		if !isKeeper || limits.Bytes == 0 {
			b.metrics.NoBudget(b.name)
		}
		switch {
		case limits.Bytes == 0:
			b.growth.forget()
			b.isOver = false
			isOff = isOff && isKeeper // Another keeper may have one still.
			if isOff || !isKeeper {
				continue
			}
		case !isKeeper && b.growth.age() < growthEvery:
			continue
		}
		err := b.turn(ctx, limits, isKeeper)
		isOff = err == nil && limits.Bytes == 0
		switch {
		case ctx.Err() != nil:
		case err == nil:
			b.trouble.Over()
		case b.trouble.News(rediserr.Cause(err)):
			b.logger.Warn("what the queue takes cannot be measured, trying again", "event", "budget", "reason", rediserr.Cause(err), "err", err)
		}
	}
}

func (b *budget) turn(ctx context.Context, limits config.Budget, isKeeper bool) error {
	used, err := b.measure(ctx, limits, isKeeper)
	if err != nil || limits.Bytes == 0 {
		return err
	}
	b.growth.add(time.Now(), used, int64(limits.Bytes))
	if isKeeper {
		b.tell(limits, used)
	}
	return nil
}

// measure is what the queue takes; its keeper has producers refused beyond the budget.
func (b *budget) measure(ctx context.Context, limits config.Budget, isKeeper bool) (used int64, err error) {
	switch {
	case !isKeeper:
		return b.admin.Used(ctx)
	case limits.Policy == config.BudgetWarn:
		return b.admin.Limit(ctx, 0)
	}
	return b.admin.Limit(ctx, int64(limits.Bytes))
}

// tell tells metrics and log.
func (b *budget) tell(limits config.Budget, used int64) {
	b.metrics.Budget(b.name, used, int64(limits.Bytes), b.growth.fullIn())
	isOver := (&inspect.Room{Used: used, Limit: int64(limits.Bytes)}).IsFull()
	if isOver && !b.isOver {
		b.logger.Warn("the queue's budget is used up", "event", "budget", "policy", string(limits.Policy),
			"used_bytes", used, "budget_bytes", int64(limits.Bytes))
	}
	b.isOver = isOver
}
