package upkeep

import (
	"context"
	"time"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

// budgetEvery is how often the remaining room is shared out again.
const budgetEvery = time.Second

// Budget keeps a queue within its bytes, on the instance that is the queue's keeper. The
// others measure it, too, so that each can forecast when it is full.
type Budget struct {
	queue  *Queue
	growth Growth
	// isOff says that we have withdrawn an earlier budget, isOver that the budget is used up.
	isOff, isOver bool
}

// NewBudget returns the budget; it does no I/O.
func NewBudget(queue *Queue) *Budget { return &Budget{queue: queue} }

// Run takes a turn a second, until ctx ends.
func (b *Budget) Run(ctx context.Context) {
	turns := rounds{every: budgetEvery, event: "budget", fails: "what the queue takes cannot be measured", logger: b.queue.Logger}
	turns.run(ctx, b.Turn)
}

// Room returns how full the queue is; nil if it has no budget, or nothing is known yet.
func (b *Budget) Room() *inspect.Room { return b.growth.Room() }

// Turn measures the queue, and makes the scripts refuse producers beyond the budget.
func (b *Budget) Turn(ctx context.Context) error {
	limits, isKeeper := b.queue.Config().Budget, b.queue.IsKeeper()
	if !isKeeper || limits.Bytes == 0 {
		b.queue.Metrics.NoBudget(b.queue.Store.Name())
	}
	if limits.Bytes == 0 {
		return b.takeBack(ctx, isKeeper)
	}
	b.isOff = false
	if !isKeeper && b.growth.Age() < growthEvery {
		return nil
	}
	used, err := b.measure(ctx, limits, isKeeper)
	if err != nil {
		return err
	}
	b.growth.Add(time.Now(), used, int64(limits.Bytes))
	if isKeeper {
		b.tell(limits, used)
	}
	return nil
}

// takeBack withdraws an earlier budget, once, on the keeper. Another keeper may still have
// one, so an instance that becomes the keeper again repeats it.
func (b *Budget) takeBack(ctx context.Context, isKeeper bool) error {
	b.growth.Forget()
	b.isOver = false
	b.isOff = b.isOff && isKeeper
	if b.isOff || !isKeeper {
		return nil
	}
	_, err := b.queue.admin().Limit(ctx, 0)
	b.isOff = err == nil
	return err
}

// measure returns how much the queue takes; on the keeper, it also applies the budget.
func (b *Budget) measure(ctx context.Context, limits config.Budget, isKeeper bool) (used int64, err error) {
	switch {
	case !isKeeper:
		return b.queue.admin().Used(ctx)
	case limits.Policy == config.BudgetWarn:
		return b.queue.admin().Limit(ctx, 0)
	}
	return b.queue.admin().Limit(ctx, int64(limits.Bytes))
}

// tell tells metrics and log.
func (b *Budget) tell(limits config.Budget, used int64) {
	b.queue.Metrics.Budget(b.queue.Store.Name(), used, int64(limits.Bytes), b.growth.FullIn())
	isOver := (&inspect.Room{Used: used, Limit: int64(limits.Bytes)}).IsFull()
	if isOver && !b.isOver {
		b.queue.Logger.Warn("the queue's budget is used up", "event", "budget", "policy", string(limits.Policy),
			"used_bytes", used, "budget_bytes", int64(limits.Bytes))
	}
	b.isOver = isOver
}
