package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/store"
	"github.com/delaybridge/delaybridge/internal/store/rediserr"
	"github.com/delaybridge/delaybridge/internal/telemetry"
	"github.com/delaybridge/delaybridge/internal/wait"
)

// budgetEvery is how often the room that is left is shared anew.
const budgetEvery = time.Second

// budget keeps a queue within its bytes, on the instance that keeps the queue. The others
// measure it, too, so that each can tell when it is full. It owns no goroutine.
type budget struct {
	name   string
	config config.Budget
	admin  *store.Admin
	// isKeeper reports whether this instance does what one instance does.
	isKeeper func() bool
	metrics  *telemetry.Metrics
	logger   *slog.Logger
	trouble  telemetry.Trouble
	growth   growth
	isOver   bool
}

// run takes a turn a second, until ctx ends. Without a budget it takes back an earlier one.
func (b *budget) run(ctx context.Context) {
	for isDone := false; !isDone && wait.Sleep(ctx, budgetEvery); {
		isKeeper := b.isKeeper()
		if !isKeeper {
			b.metrics.NoBudget(b.name)
			if b.config.Bytes == 0 || b.growth.age() < growthEvery {
				continue
			}
		}
		err := b.turn(ctx, isKeeper)
		isDone = err == nil && b.config.Bytes == 0
		switch {
		case ctx.Err() != nil:
		case err == nil:
			b.trouble.Over()
		case b.trouble.News(rediserr.Cause(err)):
			b.logger.Warn("what the queue takes cannot be measured, trying again", "event", "budget", "reason", rediserr.Cause(err), "err", err)
		}
	}
}

func (b *budget) turn(ctx context.Context, isKeeper bool) error {
	used, err := b.measure(ctx, isKeeper)
	if err != nil || b.config.Bytes == 0 {
		return err
	}
	b.growth.add(time.Now(), used, int64(b.config.Bytes))
	if isKeeper {
		b.tell(used)
	}
	return nil
}

// measure is what the queue takes; its keeper has producers refused beyond the budget.
func (b *budget) measure(ctx context.Context, isKeeper bool) (used int64, err error) {
	switch {
	case !isKeeper:
		return b.admin.Used(ctx)
	case b.config.Policy == config.BudgetWarn:
		return b.admin.Limit(ctx, 0)
	}
	return b.admin.Limit(ctx, int64(b.config.Bytes))
}

// tell tells metrics and log.
func (b *budget) tell(used int64) {
	b.metrics.Budget(b.name, used, int64(b.config.Bytes), b.growth.fullIn())
	const nearly = 0.99 // of the budget: what is refused is not measured
	isOver := float64(used) >= nearly*float64(b.config.Bytes)
	if isOver && !b.isOver {
		b.logger.Warn("the queue's budget is used up", "event", "budget", "policy", string(b.config.Policy),
			"used_bytes", used, "budget_bytes", int64(b.config.Bytes))
	}
	b.isOver = isOver
}
