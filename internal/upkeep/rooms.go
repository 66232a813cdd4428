package upkeep

import (
	"context"

	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

// Rooms knows how full a queue and Redis are. The queue's keeper stores that in Redis for
// commands, which only see one moment.
type Rooms struct {
	queue  *Queue
	budget *Budget
	memory *Memory
}

// NewRooms returns them; it does no I/O.
func NewRooms(queue *Queue, budget *Budget, memory *Memory) *Rooms {
	return &Rooms{queue: queue, budget: budget, memory: memory}
}

// Now returns what is known.
func (r *Rooms) Now() inspect.Rooms {
	return inspect.Rooms{Budget: r.budget.Room(), Redis: r.memory.Room()}
}

// Run stores them for commands, every ten seconds until ctx ends.
func (r *Rooms) Run(ctx context.Context) {
	turns := rounds{every: growthEvery}
	turns.run(ctx, func(ctx context.Context) error {
		_ = r.Turn(ctx) // Other parts report that Redis is unavailable.
		return nil
	})
}

// Turn stores them once.
func (r *Rooms) Turn(ctx context.Context) error {
	rooms := r.Now()
	if rooms == (inspect.Rooms{}) || !r.queue.IsKeeper() {
		return nil
	}
	return r.queue.admin().TellRooms(ctx, rooms)
}
