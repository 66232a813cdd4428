package upkeep

import (
	"context"

	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

// Rooms are how full a queue and Redis are, as far as is known. The instance that keeps the
// queue leaves it in Redis for commands, which see a second only.
type Rooms struct {
	queue  *Queue
	budget *Budget
	memory *Memory
}

// NewRooms returns them; it does no I/O.
func NewRooms(queue *Queue, budget *Budget, memory *Memory) *Rooms {
	return &Rooms{queue: queue, budget: budget, memory: memory}
}

// Now is what is known.
func (r *Rooms) Now() inspect.Rooms {
	return inspect.Rooms{Budget: r.budget.Room(), Redis: r.memory.Room()}
}

// Run has commands know them, every ten seconds until ctx ends.
func (r *Rooms) Run(ctx context.Context) {
	turns := rounds{every: growthEvery}
	turns.run(ctx, func(ctx context.Context) error {
		_ = r.Turn(ctx) // Others tell that Redis is away.
		return nil
	})
}

// Turn has commands know them once.
func (r *Rooms) Turn(ctx context.Context) error {
	rooms := r.Now()
	if rooms == (inspect.Rooms{}) || !r.queue.IsKeeper() {
		return nil
	}
	return r.queue.admin().TellRooms(ctx, rooms)
}
