package app

import (
	"context"

	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

// rooms are how full a queue and Redis are, as far as is known.
func (set *queueSet) rooms(queue string) inspect.Rooms {
	return inspect.Rooms{Budget: set.budgets[queue].growth.room(), Redis: set.memory.room()}
}

// tellRooms has commands know them, every ten seconds until ctx ends. One instance does
// that for a queue.
func (set *queueSet) tellRooms(ctx context.Context, r *queueRunner) {
	for wait.Sleep(ctx, growthEvery) {
		rooms := set.rooms(r.queue.Name())
		if rooms == (inspect.Rooms{}) || !r.member.IsKeeper() {
			continue
		}
		_ = inspect.NewAdmin(r.queue).TellRooms(ctx, rooms) // Others tell that Redis is away.
	}
}
